"""Span corruption: a source without some spans, and a target that consists of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from ...graphs.ir.block_type import BlockType, Signature, never, port
from ..params import Count, Params, Several
from .structure import END, PAD, refuse_wrong_ids


class SpanCorruptionParams(Params):
    """Params of `span_corruption`."""

    rate: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.15
    """Part of the tokens of a row that are removed."""
    span: Annotated[float, Field(ge=1.0, le=1000.0)] = 3.0
    """Mean length of the removed spans."""
    sentinels: Count = 100
    """Number of ids at the end of the vocabulary that stand for spans, the last id for the first
    span; the tokenizer must not use them."""
    end: Several = END
    """Id of the end token, which ends a row, its source and its target."""
    pad: Several = PAD
    """Id of the padding token."""


def _signature(_: SpanCorruptionParams, __: frozenset[str]) -> Signature:
    """Return the signature.

    A row of n tokens has a source of at most n: a span of one token or more becomes one sentinel.
    Its target has a sentinel for each span, and there are at most as many spans as tokens that
    stay, so it is not longer either: both outputs have the axis of the input, with padding.
    """
    return Signature(
        inputs=(port("ids", "ids:v[b t]", "rows of tokens, an end token, and padding"),),
        outputs=(
            port("source", "ids:v[b t]", "the tokens, with a sentinel in place of each span"),
            port("target", "ids:v[b t]", "each sentinel, followed by the tokens of its span"),
        ),
        behavior={"t": "full"},
        by_row=True,
    )


def _arguments(params: SpanCorruptionParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor arguments.

    Raises:
        ValueError: an id is not in the vocabulary, or is a sentinel.
    """
    refuse_wrong_ids(params, sizes["v"], "end", "pad")
    free = sizes["v"] - 1 - max(params.end, params.pad)
    if params.sentinels >= free:
        msg = f"sentinels is {params.sentinels}, but {sizes['v']} ids leave only {free} others"
        raise ValueError(msg, f"use at most {max(free - 1, 1)} sentinels, or a larger vocabulary")
    return {**sizes, **params.model_dump()}


SPAN_CORRUPTION = BlockType(
    name="span_corruption",
    mixes="",
    doc="Remove random spans of a row: the source has a sentinel in place of each, and the target "
    "lists each sentinel with its span. Evaluation has noise too, the same each time.",
    source="Raffel et al. 2020, sections 3.1.4 and 3.3.4",
    params=SpanCorruptionParams,
    signature=_signature,
    arguments=_arguments,
    hops=never,
    draws=True,
    module=".noise.span_corruption_module:SpanCorruption",
    example={"rate": 0.4, "span": 2.0, "sentinels": 4},
    example_inputs={"ids": "ids:11[B T]"},
)
