"""Importing: checkpoints of other libraries, by tables that are data."""
