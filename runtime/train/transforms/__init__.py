"""Transforms of a built model that make training faster or use less memory."""
