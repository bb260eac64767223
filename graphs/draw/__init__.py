"""Drawing: diagrams and text outlines of graphs, and diagrams of diffs."""
