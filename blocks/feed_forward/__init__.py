"""Feed-forward maps, mixtures of experts, and functions of each number by itself."""
