"""Constituency treebanks: trees, their files, and their encodings as symbols."""
