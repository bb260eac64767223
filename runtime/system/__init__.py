"""The machine: processor, memory, and the cache folder."""
