"""Convolution: every position reads its neighbors with the same weights."""
