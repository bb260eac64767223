"""Selective state space model (Mamba-2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, Signature, port
from ...graphs.ir.state_tensor import StateTensor
from ..params import Count, Epsilon, Params


class Mamba2Params(Params):
    """Params of `mamba2`."""

    heads: Count
    """Number of heads, each with its own decay and a width of expand * d_model / heads."""
    d_state: Count = 128
    """State size per feature of a head."""
    expand: Count = 2
    """Inner width, as a multiple of d_model."""
    groups: Count = 1
    """Number of groups; the heads of a group share B, C and the mean square of the norm."""
    kernel: Count = 4
    """Kernel size of the causal convolution before the recurrence."""
    chunk: Count = 64
    """Chunk size in positions for the parallel computation; it does not affect the result."""
    eps: Epsilon = 1e-5
    """Added to the mean square of a group in the norm."""


def _signature(_: Mamba2Params, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "input vectors"),
            port("mask", "mask[b t]?", "true at positions that update the state"),
        ),
        outputs=(port("y", "f[b t d_model]", "output at each position"),),
        behavior={"t": "causal"},
    )


def _arguments(params: Mamba2Params, sizes: Mapping[str, Any]) -> dict[str, Any]:
    width = params.expand * sizes["d_model"]
    if width % params.heads:
        msg = f"the inner width {width} is not divisible by {params.heads} heads"
        fits = [h for h in range(1, min(width, 256) + 1) if width % h == 0]
        raise ValueError(msg, f"use {min(fits, key=lambda h: abs(h - params.heads))} heads")
    if params.heads % params.groups:
        msg = f"{params.heads} heads are not divisible by {params.groups} groups"
        raise ValueError(msg, "use a divisor of the number of heads for 'groups', such as 1")
    return {"d_model": sizes["d_model"], **params.model_dump()}


def _widths(arguments: Mapping[str, Any]) -> tuple[int, int]:
    """Return the inner width and the number of convolved channels."""
    inner = arguments["expand"] * arguments["d_model"]
    return inner, inner + 2 * arguments["groups"] * arguments["d_state"]


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    a = arguments
    inner, convolved = _widths(a)
    return {
        "inner.weight": (inner + convolved + a["heads"], a["d_model"]),
        "kernel": (convolved, 1, a["kernel"]),
        "kernel_bias": (convolved,),
        "time_bias": (a["heads"],),
        "decay": (a["heads"],),
        "skip": (a["heads"],),
        "norm.weight": (inner,),
        "outer.weight": (a["d_model"], inner),
    }


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the two maps, the convolution and the products of all chunks, padding included.

    Per chunk: the scores of all pairs of positions for each group; their products with the
    values, the state update and the state read-out for each head.  Then the products between
    all pairs of chunks.
    """
    a, length = arguments, sizes["t"]
    inner, convolved = _widths(a)
    maps = length * a["d_model"] * (2 * inner + convolved + a["heads"])
    local = length * a["kernel"] * convolved
    chunks, long = -(-length // a["chunk"]), a["chunk"]
    within = long**2 * (a["groups"] * a["d_state"] + inner) + 2 * long * a["d_state"] * inner
    between = chunks**2 * a["d_state"] * inner
    work: int = 2 * sizes["b"] * (maps + local + chunks * within + between)
    return work


def _state(
    arguments: Mapping[str, Any], sizes: Mapping[str, int], _: frozenset[str]
) -> dict[str, StateTensor]:
    """Return the inputs that the next convolution reads, and the state of each head."""
    a, rows = arguments, sizes["b"]
    inner, convolved = _widths(a)
    heads = (a["groups"], a["heads"] // a["groups"])
    return {
        "before": StateTensor((rows, a["kernel"] - 1, convolved)),
        "state": StateTensor((rows, *heads, a["d_state"], inner // a["heads"]), "float32"),
    }


MAMBA2 = BlockType(
    name="mamba2",
    mixes="state space",
    doc="Selective state space model (Mamba-2): a short convolution of x, B and C, the recurrence, "
    "then a gate, a norm of each group and a linear map; H_t = exp(A dt_t) H_{t-1} + dt_t B_t x_t, "
    "y_t = C_t H_t + D x_t in each head.",
    source="Dao & Gu 2024, sections 6, 7.1 and 8.1; dt: Gu & Dao 2023, section 3.6",
    params=Mamba2Params,
    signature=_signature,
    arguments=_arguments,
    weights=_weights,
    flops=_flops,
    module=".recurrent.state_space_module:Mamba2",
    steps=True,
    state=_state,
    example={"heads": 4, "d_state": 3, "chunk": 4},
    example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
)
