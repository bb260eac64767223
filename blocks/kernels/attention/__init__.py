"""Scaled dot-product attention: backends, and the choice among them."""
