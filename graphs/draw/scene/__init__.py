"""Scenes: drawings as data, for pages that draw them."""
