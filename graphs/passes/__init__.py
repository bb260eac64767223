"""Analyses and transformations of a checked graph."""
