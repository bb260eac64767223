"""Checkpoints: writing, opening, averaging, pruning and transferring them."""
