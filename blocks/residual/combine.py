"""Combine: blocks that make one value of two, and masks of what they are made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, NoParams, Signature, never, port


def _nothing(_: NoParams, __: Mapping[str, Any]) -> dict[str, Any]:
    """The modules take no arguments: widths do not matter to them."""
    return {}


def _add_signature(_: NoParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[... d_model]", "vectors"),
            port("z", "f[... d_model]", "vectors of the same width"),
        ),
        outputs=(port("y", "f[... d_model]", "their sum"),),
    )


ADD = BlockType(
    name="add",
    doc="The sum of two values; x + z.",
    source="He et al. 2016, section 3.2",
    signature=_add_signature,
    arguments=_nothing,
    module=".residual.combine_module:Add",
    example_inputs={"x": "f[B T 8]", "z": "f[B T 8]"},
)


def _concatenate_signature(_: NoParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[... d_x]", "vectors"),
            port("z", "f[... d_z]", "vectors over the same axes"),
        ),
        outputs=(port("y", "f[... d_x+d_z]", "the first, then the second"),),
    )


CONCATENATE = BlockType(
    name="concatenate",
    doc="Two vectors as one longer one; y = [x; z].",
    source="Bahdanau et al. 2015, section 3.2",
    signature=_concatenate_signature,
    arguments=_nothing,
    module=".residual.combine_module:Concatenate",
    example_inputs={"x": "f[B T 8]", "z": "f[B T 5]"},
)


def _lengths_signature(_: NoParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("lengths", "len[b]", "how many positions of each row are no padding"),
            port("x", "f[b t d_model]", "the vectors whose positions are meant"),
        ),
        outputs=(port("mask", "mask[b t]", "true where a position is no padding"),),
    )


LENGTHS_TO_MASK = BlockType(
    name="lengths_to_mask",
    doc="The mask that goes with lengths; keep_t = t < length.",
    source="Vaswani et al. 2017, section 3.2.3",
    signature=_lengths_signature,
    arguments=_nothing,
    module=".residual.combine_module:LengthsToMask",
    steps=True,
    example_inputs={"lengths": "len[B]", "x": "f[B T 8]"},
)


def _mask_to_bias_signature(_: NoParams, __: frozenset[str]) -> Signature:
    """Which may be read is the same for all that read; s may be t, and then stands for all."""
    return Signature(
        inputs=(
            port("mask", "mask[b s]", "which positions may be read"),
            port("x", "f[b t d_model]", "the vectors that read; only their number counts"),
        ),
        outputs=(port("bias", "bias[b t s]", "0 where a position may be read, else -inf"),),
        behavior={"s": "full"},
    )


MASK_TO_BIAS = BlockType(
    name="mask_to_bias",
    doc="A mask as numbers that are added to scores; 0 where kept, else -inf.",
    source="Vaswani et al. 2017, section 3.2.3",
    signature=_mask_to_bias_signature,
    arguments=_nothing,
    hops=never,
    module=".residual.combine_module:MaskToBias",
    example_inputs={"mask": "mask[B S]", "x": "f[B T 8]"},
)


def _unfold_signature(_: NoParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "the sequence whose length counts"),
            port("memory", "f[b s d_model]", "another one, as long as it may be"),
            port("mask", "mask[b s]?", "which of its positions count; the others are zeros"),
        ),
        outputs=(port("y", "f[b t d_model]", "both, position by position"),),
        behavior={"s": "full"},
    )


UNFOLD = BlockType(
    name="unfold",
    doc="A sequence unfolded over another of any length; y_t = x_t + m_t, with m_t = 0 past "
    "the other's end.",
    source="Kalchbrenner et al. 2016, sections 3.1 and 3.2",
    signature=_unfold_signature,
    arguments=_nothing,
    hops=never,
    module=".residual.combine_module:Unfold",
    steps=True,
    example_inputs={"x": "f[B T 8]", "memory": "f[B S 8]", "mask": "mask[B S]"},
)
