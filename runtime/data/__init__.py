"""Data pipeline: text files, tokenizers, prepared corpora and batches."""
