"""Checkpoints: write, open, average, prune and transfer them."""
