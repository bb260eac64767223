"""Dot attention: queries read values by their keys, all as they come, without projections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Params


class DotAttentionParams(Params):
    """Params of `dot_attention`."""

    scale: Literal["sqrt", "none"] = "none"
    """`none` leaves the dot products as they are; `sqrt` divides them by sqrt(d)."""
    gain: Literal["none", "sqrt_length"] = "none"
    """`sqrt_length` multiplies what is read by the root of how many positions may be read, as
    a mean over m independent values has 1/m of their variance."""


def _signature(_: DotAttentionParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("query", "f[b t d_key]", "what reads"),
            port("key", "f[b s d_key]", "what queries are compared with"),
            port("value", "f[b s d_value]", "what is read"),
            port("mask", "mask[b s]?", "which positions may be read"),
        ),
        outputs=(port("y", "f[b t d_value]", "the weighted sum of the values"),),
        behavior={"s": "full"},
    )


def _arguments(params: DotAttentionParams, _: Mapping[str, Any]) -> dict[str, Any]:
    """The module takes the params alone: widths do not matter to it."""
    return params.model_dump()


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the scores of every pair, and the weighted sums."""
    del arguments
    pairs = sizes["b"] * sizes["t"] * sizes["s"]
    return 2 * pairs * (sizes["d_key"] + sizes["d_value"])


DOT_ATTENTION = BlockType(
    name="dot_attention",
    doc="Attention with keys and values of their own and no projections; softmax_j(q k_j) "
    "weighs v_j.",
    source="Gehring et al. 2017, section 3.3; gain: section 3.4; Luong et al. 2015, section 3.1",
    params=DotAttentionParams,
    signature=_signature,
    arguments=_arguments,
    flops=_flops,
    module=".attention.dot_product_module:DotAttention",
    steps=True,
    example={"gain": "sqrt_length"},
    example_inputs={
        "query": "f[B T 8]",
        "key": "f[B S 8]",
        "value": "f[B S 6]",
        "mask": "mask[B S]",
    },
)
