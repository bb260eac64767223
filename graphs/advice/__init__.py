"""Warnings about correct specs: what is unusual in a model, and most often a mistake."""
