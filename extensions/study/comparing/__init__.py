"""Comparisons of systems: resampled sentences, and means over seeds."""
