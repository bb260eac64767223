"""Parsing: trees as brackets and as sequences, and how good parses are."""
