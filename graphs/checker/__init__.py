"""The checker: a spec becomes a typed graph, or a list of findings."""
