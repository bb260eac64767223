"""Projection: what attentions of several heads share in their declarations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def nearest(wish: int, fits: Iterable[int]) -> int:
    """Return the number nearest to a wish among those that fit."""
    return min(fits, key=lambda number: abs(number - wish))


def head_widths(d_model: int, heads: int, d_k: int | None, d_v: int | None) -> tuple[int, int]:
    """Return the widths of one head's keys and values, d_model / heads where none is given.

    Raises:
        ValueError: the width does not divide among the heads, and d_k is not given.
    """
    if d_k is None and d_model % heads:
        msg = f"width {d_model} does not divide among {heads} heads"
        fits = (h for h in range(1, min(d_model, 64) + 1) if d_model % h == 0)
        raise ValueError(msg, f"use {nearest(heads, fits)} heads, or give d_k")
    width = d_k or d_model // heads
    return width, d_v or width


def projections(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the matrices of queries, keys and values, and of the one that mixes."""
    a = arguments
    d_memory, kv_heads = a.get("d_memory", a["d_model"]), a.get("kv_heads", a["heads"])
    return {
        "query": (a["heads"] * a["d_k"], a["d_model"]),
        "key": (kv_heads * a["d_k"], d_memory),
        "value": (kv_heads * a["d_v"], d_memory),
        "out": (a["d_model"], a["heads"] * a["d_v"]),
    }


def linear_weights(
    shapes: Mapping[str, tuple[int, ...]], *, bias: bool, without: str = ""
) -> dict[str, tuple[int, ...]]:
    """Return the weights of linear maps by name, with a bias each but for one."""
    weights: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        weights[f"{name}.weight"] = shape
        if bias and name != without:
            weights[f"{name}.bias"] = shape[:1]
    return weights
