"""Patches: the changes that a child spec makes to the spec it extends."""
