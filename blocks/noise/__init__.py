"""Blocks that prepare the inputs of an objective: noise, shifted ids and masks."""
