"""Preparation of tables: settings, tokenizers, and the arrays of each split."""
