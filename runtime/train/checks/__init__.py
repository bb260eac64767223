"""Checks of a run before any of its data is read, by subject."""
