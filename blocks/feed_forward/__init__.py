"""Feed-forward blocks, mixtures of experts and elementwise functions."""
