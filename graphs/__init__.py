"""Graphs of specs: representation, checker, analyses, costs, diffs and drawings."""
