"""Dot-product attention without projections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ...graphs.ir.block_type import BlockType, Signature, port
from ...graphs.ir.state_tensor import StateTensor
from ..params import Count, Flag, Params
from .multi_head import nearest


class DotAttentionParams(Params):
    """Params of `dot_attention`."""

    scale: Literal["sqrt", "none"] = "none"
    """`none`: unscaled dot products; `sqrt`: divided by the square root of a head's key width."""
    gain: Literal["none", "sqrt_length"] = "none"
    """`sqrt_length` multiplies the output by sqrt(m), m being the number of unmasked positions:
    a mean over m independent values has 1/m of their variance."""
    heads: Count = 1
    """Number of heads; the vectors are split into heads, in order."""
    kv_heads: Count | None = None
    """Number of key and value heads, a divisor of `heads`, which is the default; with fewer, groups
    of heads share them, and values are as wide as keys."""
    causal: Flag = False
    """Whether positions attend only to keys of the same and earlier positions."""

    @property
    def grouped(self) -> bool:
        """Whether there are fewer key and value heads than heads."""
        return self.kv_heads not in (None, self.heads)


def _signature(params: DotAttentionParams, _: frozenset[str]) -> Signature:
    s = "t" if params.causal else "s"
    query, value = ("d_query", "d_key") if params.grouped else ("d_key", "d_value")
    result = "d_query" if params.grouped else "d_value"
    return Signature(
        inputs=(
            port("query", f"f[b t {query}]", "queries"),
            port("key", f"f[b {s} d_key]", "keys"),
            port("value", f"f[b {s} {value}]", "values"),
            port("mask", f"mask[b {s}]?", "true at key positions that may be attended to"),
        ),
        outputs=(port("y", f"f[b t {result}]", "weighted sum of the values for each query"),),
        behavior={"t": "causal"} if params.causal else {"s": "full"},
        ordered=params.causal,
    )


def _arguments(params: DotAttentionParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor arguments: the params, and with `causal` the widths to store.

    Raises:
        ValueError: the heads do not divide the widths, or `gain` does not fit `causal`.
    """
    heads, kv_heads = params.heads, params.kv_heads or params.heads
    if heads % kv_heads:
        msg = f"{heads} heads are not divisible by {kv_heads} key and value heads"
        fits = (h for h in range(1, heads + 1) if heads % h == 0)
        raise ValueError(msg, f"use {nearest(kv_heads, fits)} kv_heads")
    for name, width in (("keys", sizes["d_key"]), ("values", sizes.get("d_value", 0))):
        if width % kv_heads:
            msg = f"the width of the {name}, {width}, is not divisible by {kv_heads} heads"
            raise ValueError(msg)
    query, key = sizes.get("d_query", 0), sizes["d_key"]
    if params.grouped and query * kv_heads != key * heads:
        msg = f"{heads} heads of queries have the width {query}, {kv_heads} of keys {key}"
        raise ValueError(msg, f"make the keys and values {query * kv_heads // heads} wide")
    if params.causal and params.gain != "none":
        raise ValueError("'gain' needs a fixed number of keys, but 'causal' changes it")
    stored = {"d_key": key, "d_value": sizes.get("d_value", key)} if params.causal else {}
    return {**params.model_dump(), **stored}


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the scores of every pair, and the weighted sums."""
    pairs = sizes["b"] * sizes["t"] * sizes.get("s", sizes["t"])
    # Queries and outputs of grouped heads have one width, d_query.
    query = sizes.get("d_query", sizes["d_key"])
    value = query if "d_query" in sizes else sizes["d_value"]
    del arguments
    return 2 * pairs * (query + value)


def _state(
    arguments: Mapping[str, Any], sizes: Mapping[str, int], wired: frozenset[str]
) -> dict[str, StateTensor]:
    """Return the keys and values of all positions, or of the memory, and their mask."""
    rows, causal = sizes["b"], arguments["causal"]
    length = sizes["t"] if causal else sizes["s"]
    heads = arguments["kv_heads"] or arguments["heads"]
    widths = {"key": sizes["d_key"], "value": sizes.get("d_value", sizes["d_key"])}
    state = {
        name: StateTensor((rows, heads, length, d // heads) if causal else (rows, length, d))
        for name, d in widths.items()
    }
    if "mask" in wired:
        state["mask"] = StateTensor((rows, length, 1) if causal else (rows, length), "bool")
    return state


DOT_ATTENTION = BlockType(
    name="dot_attention",
    family="attention",
    mixes="attention",
    doc="Dot-product attention with separate keys and values and no projections; "
    "sum_j softmax_j(q k_j) v_j for each head.  Layers that read the same keys and values store "
    "them once while decoding.",
    source="Gehring et al. 2017, section 3.3; gain: section 3.4; Luong et al. 2015, section 3.1; "
    "shared by layers: Brandon et al. 2024, section 3",
    params=DotAttentionParams,
    signature=_signature,
    arguments=_arguments,
    flops=_flops,
    module=".attention.dot_product_module:DotAttention",
    steps=True,
    state=_state,
    keeps=("key", "value", "mask"),
    example={"gain": "sqrt_length"},
    example_inputs={
        "query": "f[B T 8]",
        "key": "f[B S 8]",
        "value": "f[B S 6]",
        "mask": "mask[B S]",
    },
)
