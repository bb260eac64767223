"""Metrics: EVALB scores of constituency parses."""
