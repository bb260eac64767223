"""Span corruption: a source without some spans, and a target that consists of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from ...graphs.ir.block_type import BlockType, Signature, never, port
from ..params import END, PAD, Count, Params, Several
from .structure import refuse_wrong_ids


class SpanCorruptionParams(Params):
    """Params of `span_corruption`."""

    rate: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.15
    """Part of the tokens of a row that are removed."""
    span: Annotated[float, Field(ge=1.0, le=1000.0)] = 3.0
    """Mean length of the removed spans."""
    sentinels: Count = 100
    """Number of ids that are added to the vocabulary and stand for spans, the last id for the
    first span, as in T5."""
    end: Several = END
    """Id of the end token, which ends a row, its source and its target."""
    pad: Several = PAD
    """Id of the padding token."""


def _signature(params: SpanCorruptionParams, _: frozenset[str]) -> Signature:
    """Return the signature; the vocabulary of the outputs also has the sentinels.

    A row of n tokens has a source of at most n: a span of one token or more becomes one sentinel.
    Its target has a sentinel for each span, and there are at most as many spans as tokens that
    stay, so it is not longer either: both outputs have the axis of the input, with padding.
    """
    larger = f"ids:v+{params.sentinels}[b t]"
    return Signature(
        inputs=(port("ids", "ids:v[b t]", "rows of tokens, an end token, and padding"),),
        outputs=(
            port("source", larger, "the tokens, with a sentinel in place of each span"),
            port("target", larger, "each sentinel, followed by the tokens of its span"),
        ),
        behavior={"t": "full"},
        by_row=True,
    )


def _arguments(params: SpanCorruptionParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor arguments; there, the vocabulary includes the sentinels.

    Raises:
        ValueError: an id is not in the vocabulary.
    """
    refuse_wrong_ids(params, sizes["v"], "end", "pad")
    return {"v": sizes["v"] + params.sentinels, **params.model_dump()}


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
