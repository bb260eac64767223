"""Training of objectives: specs whose inputs are columns and whose outputs are losses."""
