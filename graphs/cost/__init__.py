"""Costs of a graph: FLOPs, parameters and critical paths, from the formulas of its blocks."""
