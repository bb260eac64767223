"""Properties of the machine: memory and cache folder."""
