"""Constituency parsing tasks: sequence, chart and tag parsers, and their evaluation."""
