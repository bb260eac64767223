"""Drawing: graphs and differences as diagrams and as text outlines."""
