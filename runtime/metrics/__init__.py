"""Metrics: EVALB scores of parses."""
