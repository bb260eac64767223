"""The report of a study: one record in several forms."""
