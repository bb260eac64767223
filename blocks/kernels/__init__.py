"""Functions and layers shared by the modules of several blocks."""
