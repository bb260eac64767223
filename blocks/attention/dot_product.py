"""Dot-product attention without projections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ...graphs.ir.block_type import BlockType, Signature, port
from ...graphs.ir.state_tensor import StateTensor
from ..params import Base, Count, Flag, Params
from .multi_head import nearest


class DotAttentionParams(Params):
    """Params of `dot_attention`."""

    scale: Literal["sqrt", "none"] | Base = "none"
    """Factor of the dot products: `none` for 1, `sqrt` for 1 / sqrt(key width of a head), or a
    number."""
    gain: Literal["none", "sqrt_length"] = "none"
    """`sqrt_length` multiplies the output by sqrt(m), m being the number of unmasked positions:
    a mean over m independent values has 1/m of their variance."""
    heads: Count = 1
    """Number of heads; the vectors are split into heads, in order."""
    kv_heads: Count | None = None
    """Number of key and value heads, a divisor of `heads`, which is the default; with fewer, groups
    of heads share them."""
    causal: Flag = False
    """Whether positions attend only to keys of the same and earlier positions."""


def _signature(params: DotAttentionParams, wired: frozenset[str]) -> Signature:
    """Return the signature; without a wired `value`, the values are the keys."""
    s = "t" if params.causal else "s"
    shared = params.heads // (params.kv_heads or params.heads)
    key, value = "d_key", "d_value" if "value" in wired else "d_key"
    times = f"{shared}*" if shared > 1 else ""
    return Signature(
        inputs=(
            port("query", f"f[b t {times}{key}]", "queries"),
            port("key", f"f[b {s} {key}]", "keys"),
            port("value", f"f[b {s} {value}]?", "values; default: the keys, then stored once"),
            port("mask", f"mask[b {s}]?", "true at key positions that may be attended to"),
        ),
        outputs=(port("y", f"f[b t {times}{value}]", "weighted sum of the values for each query"),),
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
    d_key, d_value = sizes["d_key"], sizes.get("d_value", 0)
    for name, width in (("keys", d_key), ("values", d_value)):
        if width % kv_heads:
            msg = f"the width of the {name}, {width}, is not divisible by {kv_heads} heads"
            raise ValueError(msg)
    if params.causal and params.gain != "none":
        raise ValueError("'gain' needs a fixed number of keys, but 'causal' changes it")
    stored = {"d_key": d_key, "d_value": d_value} if params.causal else {}
    return {**params.model_dump(), **stored}


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the scores of every pair, and the weighted sums."""
    pairs = sizes["b"] * sizes["t"] * sizes.get("s", sizes["t"])
    shared: int = arguments["heads"] // (arguments["kv_heads"] or arguments["heads"])
    return 2 * pairs * shared * (sizes["d_key"] + sizes.get("d_value", sizes["d_key"]))


def _state(
    arguments: Mapping[str, Any], sizes: Mapping[str, int], wired: frozenset[str]
) -> dict[str, StateTensor]:
    """Return the keys and values of all positions, or of the memory, and their mask."""
    rows, causal = sizes["b"], arguments["causal"]
    length = sizes["t"] if causal else sizes["s"]
    heads = arguments["kv_heads"] or arguments["heads"]
    widths = {name: sizes[f"d_{name}"] for name in ("key", "value") if name in wired}
    state: dict[str, StateTensor] = {
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
    "them once while decoding, and so does a layer whose values are its keys.",
    source="Gehring et al. 2017, section 3.3; gain: section 3.4; Luong et al. 2015, section 3.1; "
    "shared by layers: Brandon et al. 2024, section 3; keys as values: DeepSeek-AI 2024, "
    "DeepSeek-V2, section 2.1.2",
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
