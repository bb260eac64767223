"""Opened checkpoints, and their results as plain data."""
