"""Token embeddings and position encodings."""
