"""Comparison of an imported model with its source, a class of transformers."""
