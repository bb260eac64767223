"""Constituency parsing: treebanks, decoders, metrics and commands."""
