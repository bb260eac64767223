"""Blocks that fill the slots of attention, and how attention applies them."""
