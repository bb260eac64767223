"""Patches: how a spec that extends another changes it."""
