"""Pooling: a sequence becomes shorter, one vector, or a score for each span."""
