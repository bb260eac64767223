"""Validation of block types that come from elsewhere: their contracts and formulas; no torch."""
