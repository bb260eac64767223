"""Analyses and rewrites of a checked graph."""
