"""Importing checkpoints of other libraries, described by JSON tables."""
