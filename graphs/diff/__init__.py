"""Differences between two graphs, and which weights carry over."""
