"""State space: a linear recurrence whose decay and whose input depend on what is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Count, Epsilon, Params


class Mamba2Params(Params):
    """Params of `mamba2`."""

    heads: Count
    """Number of heads, each with a decay of its own; expand * d_model / heads wide."""
    d_state: Count = 128
    """Numbers that a head remembers for each of its own."""
    expand: Count = 2
    """Width inside, as a multiple of d_model."""
    groups: Count = 1
    """Groups of heads that write and read the state by the same vectors."""
    kernel: Count = 4
    """Positions that the convolution before the recurrence reads, none later."""
    chunk: Count = 64
    """Positions that are computed by matrix products at once; it changes no result."""
    eps: Epsilon = 1e-5
    """Added by the norm to what it takes the root of."""


def _signature(_: Mamba2Params, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "vectors"),
            port("mask", "mask[b t]?", "which positions change the state"),
        ),
        outputs=(port("y", "f[b t d_model]", "what was read from the state at each position"),),
        behavior={"t": "causal"},
    )


def _arguments(params: Mamba2Params, sizes: Mapping[str, Any]) -> dict[str, Any]:
    width = params.expand * sizes["d_model"]
    if width % params.heads:
        msg = f"an inner width of {width} does not divide among {params.heads} heads"
        fits = [h for h in range(1, min(width, 256) + 1) if width % h == 0]
        raise ValueError(msg, f"use {min(fits, key=lambda h: abs(h - params.heads))} heads")
    if params.heads % params.groups:
        msg = f"{params.heads} heads do not divide into {params.groups} groups"
        raise ValueError(msg, "use a number of groups that divides the heads, such as 1")
    return {"d_model": sizes["d_model"], **params.model_dump()}


def _widths(arguments: Mapping[str, Any]) -> tuple[int, int]:
    """Return the width inside, and that of what is convolved."""
    inside = arguments["expand"] * arguments["d_model"]
    return inside, inside + 2 * arguments["groups"] * arguments["d_state"]


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    a = arguments
    inside, convolved = _widths(a)
    return {
        "inner.weight": (inside + convolved + a["heads"], a["d_model"]),
        "kernel": (convolved, 1, a["kernel"]),
        "kernel_bias": (convolved,),
        "time_bias": (a["heads"],),
        "decay": (a["heads"],),
        "skip": (a["heads"],),
        "norm.weight": (inside,),
        "outer.weight": (a["d_model"], inside),
    }


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the two maps, the convolution, and the products of every chunk, a last one in full.

    Within a chunk of L positions: scores of all pairs for each group; what they weigh, what
    the chunk writes and what it reads, for each head; and between all pairs of chunks.
    """
    a, length = arguments, sizes["t"]
    inside, convolved = _widths(a)
    maps = length * a["d_model"] * (2 * inside + convolved + a["heads"])
    local = length * a["kernel"] * convolved
    chunks, long = -(-length // a["chunk"]), a["chunk"]
    within = long**2 * (a["groups"] * a["d_state"] + inside) + 2 * long * a["d_state"] * inside
    between = chunks**2 * a["d_state"] * inside
    work: int = 2 * sizes["b"] * (maps + local + chunks * within + between)
    return work


MAMBA2 = BlockType(
    name="mamba2",
    doc="Selective state space; H_t = exp(A dt_t) H_{t-1} + dt_t B_t x_t and y_t = C_t H_t + D x_t "
    "in each head, x, B and C after a short convolution, then a gate, a norm and a map.",
    source="Dao & Gu 2024, sections 6 and 7.1; dt: Gu & Dao 2023, section 3.6",
    params=Mamba2Params,
    signature=_signature,
    arguments=_arguments,
    weights=_weights,
    flops=_flops,
    module=".recurrent.state_space_module:Mamba2",
    steps=True,
    example={"heads": 4, "d_state": 3, "chunk": 4},
    example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
)
