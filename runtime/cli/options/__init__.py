"""Options shared by several commands; importing them does not load torch."""
