"""Profiling of time and memory, attributed to the nodes of a spec."""
