"""Attention blocks."""
