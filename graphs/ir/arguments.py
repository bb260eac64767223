"""Arguments: how a function that computes a graph or a block writes the names of its ports."""

from __future__ import annotations

import keyword

ARGUMENTS = frozenset(
    {"self", "capacity", "state", "position", "layer", "layer_state", "nn", "torch", "zip", "range"}
)
"""Words that may not be an input of a spec: other arguments and variables of its model."""


def is_reserved(name: str) -> bool:
    """Return whether a name cannot be an argument of a generated function."""
    return keyword.iskeyword(name) or name in ARGUMENTS


def argument(port: str) -> str:
    """Return the argument for a port: its name, with an underscore if that is reserved.

    >>> [argument(name) for name in ("mask", "state", "class", "class_")]
    ['mask', 'state_', 'class_', 'class__']
    """
    return f"{port}_" if is_reserved(port.rstrip("_")) else port
