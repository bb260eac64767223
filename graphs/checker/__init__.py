"""The checker: turn a spec into a typed graph, or into a list of findings."""
