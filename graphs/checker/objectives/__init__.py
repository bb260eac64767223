"""Objectives: held models, shared modules, initial weights and losses."""
