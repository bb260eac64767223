"""Weft: compose sequence models from typed blocks."""
