"""Residual paths, norms, and blocks that combine two values."""
