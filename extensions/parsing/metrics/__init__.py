"""EVALB, and the metric that reports it."""
