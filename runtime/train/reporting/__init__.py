"""Reports of a training: metrics, their history on disk, and their curves."""
