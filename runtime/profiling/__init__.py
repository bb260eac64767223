"""Where time and memory go, told by the nodes of a spec."""
