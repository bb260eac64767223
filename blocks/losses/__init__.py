"""Blocks that compute losses: sums over the items of a batch, with the number of items."""
