"""Options that several commands share; loading them needs no torch."""
