"""Embeddings, and vectors that say where a position is in its sequence."""
