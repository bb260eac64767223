"""Blocks that combine two values, and blocks that create masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, NoParams, Signature, never, port
from ...graphs.ir.state_tensor import StateTensor
from ..params import no_arguments


def _lengths_signature(_: NoParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("lengths", "len[b]", "number of non-padding positions of each row"),
            port("x", "f[b t d_model]", "padded vectors, which give the length of the mask"),
        ),
        outputs=(port("mask", "mask[b t]", "true at non-padding positions"),),
    )


LENGTHS_TO_MASK = BlockType(
    name="lengths_to_mask",
    mixes="",
    adapts=("len", "mask"),
    doc="Convert lengths to a padding mask; mask_t = t < length.",
    source="Vaswani et al. 2017, section 3.2.3",
    signature=_lengths_signature,
    arguments=no_arguments,
    module=".residual.combine_module:LengthsToMask",
    steps=True,
    state=lambda _, sizes, __: {"lengths": StateTensor((sizes["b"],), "int64")},
    example_inputs={"lengths": "len[B]", "x": "f[B T 8]"},
)


def _unfold_signature(_: NoParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "a sequence, which gives the length of the output"),
            port("memory", "f[b s d_model]", "a second sequence of any length"),
            port("mask", "mask[b s]?", "true at non-padding memory positions; others are zeros"),
        ),
        outputs=(port("y", "f[b t d_model]", "sum of both, position by position"),),
        behavior={"s": "full"},
    )


def _unfold_state(
    _: Mapping[str, Any], sizes: Mapping[str, int], __: frozenset[str]
) -> dict[str, StateTensor]:
    """Return the memory, with zeros where it is masked."""
    return {"memory": StateTensor((sizes["b"], sizes["s"], sizes["d_model"]))}


UNFOLD = BlockType(
    name="unfold",
    mixes="",
    doc="Dynamic unfolding: add a second sequence m of any length position by position; "
    "y_t = x_t + m_t, with m_t = 0 past its end.",
    source="Kalchbrenner et al. 2016, sections 3.1 and 3.2",
    signature=_unfold_signature,
    arguments=no_arguments,
    hops=never,
    module=".residual.combine_module:Unfold",
    steps=True,
    state=_unfold_state,
    example_inputs={"x": "f[B T 8]", "memory": "f[B S 8]", "mask": "mask[B S]"},
)
