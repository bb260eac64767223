"""Lexical shortlists: decode with the tokens that a source is likely to be translated by."""
