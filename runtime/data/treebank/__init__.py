"""Treebanks: constituency trees, their files, and the symbols they are written as."""
