"""Residual sub-layers, norms and blocks that combine two values."""
