"""Properties of the machine: processor, memory and cache folder."""
