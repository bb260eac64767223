"""Block types, one folder per family, and the registry of all of them."""
