"""Metrics: scores of predictions against references, and of losses."""
