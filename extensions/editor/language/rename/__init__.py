"""Rename what a spec defines, in its file and in those that depend on it."""
