"""Blocks that prepare inputs without noise: ids, masks, and values without a gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, Signature, never, port
from ..params import END, PAD, Count, Params, Several, only_params


def refuse_wrong_ids(params: Params, size: int, *names: str) -> None:
    """Raise an error if ids in params are not in a vocabulary.

    Args:
        params: the params.
        size: size of the vocabulary.
        names: params with an id.

    Raises:
        ValueError: one is too large.
    """
    for name in names:
        if getattr(params, name) >= size:
            msg = f"{name} is {getattr(params, name)}, but there are only {size} ids"
            raise ValueError(msg, f"use an id below {size}")


class NotPaddingParams(Params):
    """Params of `not_padding`."""

    pad: Several = PAD
    """Id of the padding token."""


def _not_padding_signature(_: NotPaddingParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("ids", "ids:v[...]", "sequences with padding"),),
        outputs=(port("y", "mask[...]", "true at non-padding positions"),),
    )


NOT_PADDING = BlockType(
    name="not_padding",
    mixes="",
    doc="Mask of the non-padding positions; y = (ids != pad).",
    source="Vaswani et al. 2017, section 3.2.3",
    params=NotPaddingParams,
    signature=_not_padding_signature,
    arguments=only_params,
    counts="same",
    module=".noise.structure_module:NotPadding",
    example={},
    example_inputs={"ids": "ids:11[B T]"},
)


class PrefixMaskParams(Params):
    """Params of `prefix_mask`."""

    separator: Several
    """Id that ends the prefix, and belongs to it; a row without it has no prefix."""


def _prefix_signature(_: PrefixMaskParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("ids", "ids:v[b t]", "prefix, separator and continuation in one sequence"),
            port("mask", "mask[b t]?", "true at non-padding positions"),
        ),
        outputs=(
            port("prefix", "mask[b t]", "true up to the first separator"),
            port("rest", "mask[b t]", "true after it, where the loss counts; false at padding"),
        ),
        behavior={"t": "full"},
    )


def _prefix_arguments(params: PrefixMaskParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    refuse_wrong_ids(params, sizes["v"], "separator")
    return params.model_dump()


PREFIX_MASK = BlockType(
    name="prefix_mask",
    mixes="",
    doc="Masks of a prefix, which ends with the first separator, and of the rest; prefix_t = "
    "exists s >= t: s is the first separator.",
    source="Raffel et al. 2020, section 3.2.1",
    params=PrefixMaskParams,
    signature=_prefix_signature,
    arguments=_prefix_arguments,
    hops=never,
    module=".noise.structure_module:PrefixMask",
    example={"separator": 4},
    example_inputs={"ids": "ids:11[B T]", "mask": "mask[B T]"},
)


class EmptyTextParams(Params):
    """Params of `empty_text`."""

    end: Several = END
    """Id of the end token, of which an empty text consists."""


def _empty_signature(_: EmptyTextParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("ids", "ids:v[b t]", "texts, of which only the number matters"),),
        outputs=(port("empty", "ids:v[b 1]", "an empty text for each row: the end token"),),
        behavior={"t": "full"},
    )


def _empty_arguments(params: EmptyTextParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    refuse_wrong_ids(params, sizes["v"], "end")
    return params.model_dump()


EMPTY_TEXT = BlockType(
    name="empty_text",
    mixes="",
    doc="An empty text in place of each text, so that a decoder of translations is also a language "
    "model; empty = [end].",
    source="Sennrich et al. 2016, section 3.1 (dummy source sentences)",
    params=EmptyTextParams,
    signature=_empty_signature,
    arguments=_empty_arguments,
    hops=never,
    module=".noise.structure_module:EmptyText",
    example={},
    example_inputs={"ids": "ids:11[B T]"},
)


class LengthClassParams(Params):
    """Params of `length_class`."""

    classes: Count
    """Number of classes; a longer row is of the last class."""


def _length_signature(params: LengthClassParams, _: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("mask", "mask[b t]", "true at the positions that count"),),
        outputs=(port("label", f"label:{params.classes}[b]", "class n - 1 for n positions"),),
        behavior={"t": "full"},
    )


LENGTH_CLASS = BlockType(
    name="length_class",
    mixes="",
    doc="Length of each row as a class, to predict it; "
    "label = min(max(sum_t mask_t, 1), classes) - 1.",
    source="Ghazvininejad et al. 2019, section 2.3; Lee et al. 2018, section 3.1",
    params=LengthClassParams,
    signature=_length_signature,
    arguments=only_params,
    hops=never,
    module=".noise.structure_module:LengthClass",
    example={"classes": 4},
    example_inputs={"mask": "mask[B T]"},
)
