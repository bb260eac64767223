"""Attention: positions of one sequence read from another, or from their own."""
