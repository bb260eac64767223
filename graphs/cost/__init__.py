"""Costs: FLOPs, parameters and critical paths of a graph, from the formulas of its blocks."""
