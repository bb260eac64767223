"""Specs as the Python API sees them: loading, checking, swapping blocks."""
