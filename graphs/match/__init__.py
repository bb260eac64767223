"""Whether a graph is an instance of a spec: corresponding nodes, and the params that give it."""
