"""Checkpoints of a run: which are kept, and how a run continues from them."""
