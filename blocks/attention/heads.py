"""Split vectors into heads, and merge the heads again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Count, Params


class SplitHeadsParams(Params):
    """Params of `split_heads`."""

    heads: Count
    """Number of heads."""
    d_head: Count
    """Width of one head; the width of the input is heads * d_head."""


def _split_signature(params: SplitHeadsParams, _: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("x", "f[b t d_model]", "vectors"),),
        outputs=(port("y", f"f[b {params.heads} t {params.d_head}]", "one matrix for each head"),),
    )


def _split_arguments(params: SplitHeadsParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor arguments.

    Raises:
        ValueError: the width of the input is not heads * d_head.
    """
    width = sizes["d_model"]
    if width != params.heads * params.d_head:
        msg = f"width {width} is not {params.heads} heads of {params.d_head}"
        heads, remainder = divmod(width, params.d_head)
        help_ = "change d_head" if remainder else f"use {heads} heads"
        raise ValueError(msg, help_)
    return {"heads": params.heads}


SPLIT_HEADS = BlockType(
    name="split_heads",
    mixes="",
    doc="Split vectors into heads, in order; y[h, t] = x[t, h d : (h + 1) d].",
    source="Vaswani et al. 2017, section 3.2.2",
    params=SplitHeadsParams,
    signature=_split_signature,
    arguments=_split_arguments,
    module=".attention.heads_module:SplitHeads",
    example={"heads": 2, "d_head": 4},
    example_inputs={"x": "f[B S 8]"},
)


class MergeHeadsParams(Params):
    """Params of `merge_heads`."""

    d_out: Count
    """Width of the output: the number of heads times the width of one."""


def _merge_signature(params: MergeHeadsParams, _: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("x", "f[b heads t d]", "one matrix for each head"),),
        outputs=(port("y", f"f[b t {params.d_out}]", "vectors"),),
        sized=("heads",),
    )


def _merge_arguments(params: MergeHeadsParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return no constructor arguments.

    Raises:
        ValueError: d_out is not the number of heads times the width of one.
    """
    width = sizes["heads"] * sizes["d"]
    if params.d_out != width:
        msg = f"d_out is {params.d_out}, but {sizes['heads']} heads of {sizes['d']} have {width}"
        raise ValueError(msg, f"set d_out to {width}")
    return {}


MERGE_HEADS = BlockType(
    name="merge_heads",
    mixes="",
    doc="Concatenate the heads, in order; y[t] = [x[1, t]; ...; x[H, t]].",
    source="Vaswani et al. 2017, section 3.2.2",
    params=MergeHeadsParams,
    signature=_merge_signature,
    arguments=_merge_arguments,
    module=".attention.heads_module:MergeHeads",
    example={"d_out": 8},
    example_inputs={"x": "f[B 2 S 4]"},
)
