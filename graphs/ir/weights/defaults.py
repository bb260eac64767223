"""Defaults of the functions that a block type declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from ..state_tensor import StateTensor
from .division import Division


def merged(params: BaseModel, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default constructor arguments: inferred sizes, then params."""
    return {**sizes, **params.model_dump()}


def no_weights(_: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return no weights, for a block without parameters."""
    return {}


def no_state(
    _: Mapping[str, Any], __: Mapping[str, int], ___: frozenset[str]
) -> dict[str, StateTensor]:
    """Return no tensors, for a block whose `step` needs only the position."""
    return {}


def no_flops(_: Mapping[str, Any], __: Mapping[str, int]) -> int:
    """Return 0, the FLOPs of a block without matrix products."""
    return 0


def no_sizes(_: Any, __: Mapping[str, Any]) -> dict[str, int]:
    """Return no sizes, for a block whose slots name only those of its ports."""
    return {}


def once(_: Mapping[str, Any], __: Mapping[str, int]) -> int:
    """Return 1, for a block that needs one sequential operation or one application."""
    return 1


def unlimited(_: Mapping[str, Any]) -> int | None:
    """Return None, the maximum sequence length of a block that takes any length."""
    return None


def undivided(_: Mapping[str, Any]) -> Division | None:
    """Return None, for a block whose work cannot be divided."""
    return None
