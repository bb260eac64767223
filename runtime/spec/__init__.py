"""The Python API of specs: loading, checking, swapping blocks."""
