"""Dot-product attention without projections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ...graphs.ir.block_type import BlockType, Signature, port
from ...graphs.ir.state_tensor import StateTensor
from ..params import Params


class DotAttentionParams(Params):
    """Params of `dot_attention`."""

    scale: Literal["sqrt", "none"] = "none"
    """`none`: unscaled dot products; `sqrt`: divided by sqrt(d)."""
    gain: Literal["none", "sqrt_length"] = "none"
    """`sqrt_length` multiplies the output by sqrt(m), m being the number of unmasked positions:
    a mean over m independent values has 1/m of their variance."""


def _signature(_: DotAttentionParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("query", "f[b t d_key]", "queries"),
            port("key", "f[b s d_key]", "keys"),
            port("value", "f[b s d_value]", "values"),
            port("mask", "mask[b s]?", "true at key positions that may be attended to"),
        ),
        outputs=(port("y", "f[b t d_value]", "weighted sum of the values for each query"),),
        behavior={"s": "full"},
        ordered=False,
    )


def _arguments(params: DotAttentionParams, _: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor arguments: only the params, since the widths do not matter."""
    return params.model_dump()


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the scores of every pair, and the weighted sums."""
    del arguments
    pairs = sizes["b"] * sizes["t"] * sizes["s"]
    return 2 * pairs * (sizes["d_key"] + sizes["d_value"])


def _state(
    arguments: Mapping[str, Any], sizes: Mapping[str, int], wired: frozenset[str]
) -> dict[str, StateTensor]:
    """Return the keys and values of the memory, and their mask."""
    del arguments
    rows, length = sizes["b"], sizes["s"]
    kept = {
        "key": StateTensor((rows, length, sizes["d_key"])),
        "value": StateTensor((rows, length, sizes["d_value"])),
    }
    return kept | ({"mask": StateTensor((rows, length), "bool")} if "mask" in wired else {})


DOT_ATTENTION = BlockType(
    name="dot_attention",
    family="attention",
    mixes="attention",
    doc="Dot-product attention with separate keys and values and no projections; "
    "sum_j softmax_j(q k_j) v_j.",
    source="Gehring et al. 2017, section 3.3; gain: section 3.4; Luong et al. 2015, section 3.1",
    params=DotAttentionParams,
    signature=_signature,
    arguments=_arguments,
    flops=_flops,
    module=".attention.dot_product_module:DotAttention",
    steps=True,
    state=_state,
    example={"gain": "sqrt_length"},
    example_inputs={
        "query": "f[B T 8]",
        "key": "f[B S 8]",
        "value": "f[B S 6]",
        "mask": "mask[B S]",
    },
)
