"""Helpers for declaring multi-head attention blocks: head widths and weight shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def nearest(target: int, candidates: Iterable[int]) -> int:
    """Return the candidate nearest to a target."""
    return min(candidates, key=lambda number: abs(number - target))


def head_widths(d_model: int, heads: int, d_k: int | None, d_v: int | None) -> tuple[int, int]:
    """Return the key and value width of one head; d_model / heads by default.

    Raises:
        ValueError: d_k is not given, and d_model is not divisible by the number of heads.
    """
    if d_k is None and d_model % heads:
        msg = f"width {d_model} is not divisible by {heads} heads"
        fits = (h for h in range(1, min(d_model, 64) + 1) if d_model % h == 0)
        raise ValueError(msg, f"use {nearest(heads, fits)} heads, or set d_k")
    width = d_k or d_model // heads
    return width, d_v or width


def projections(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the weight shapes of the query, key, value and output projections."""
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
    """Return the weight and bias shapes of linear maps; the map `without` has no bias."""
    weights: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        weights[f"{name}.weight"] = shape
        if bias and name != without:
            weights[f"{name}.bias"] = shape[:1]
    return weights
