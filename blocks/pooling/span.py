"""Span scores: a score per label for every span of a sequence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Count, Epsilon, Params


class SpanScoreParams(Params):
    """Params of `span_score`."""

    labels: Count
    """Number of labels, each with a score for every span."""
    d_hidden: Count
    """Width of the hidden layer."""
    eps: Epsilon = 1e-5
    """Added to the variance in the layer norm of the hidden layer."""


def _signature(params: SpanScoreParams, _: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "vectors; first half: left context, second half: right"),
            port("mask", "mask[b t]?", "true at non-padding positions"),
        ),
        outputs=(
            port(
                "score",
                f"score[b t t {params.labels}]",
                "scores of the span from i to j inclusive; zeros where j < i",
            ),
        ),
        behavior={"t": "full"},
    )


def _arguments(params: SpanScoreParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    if sizes["d_model"] % 2:
        msg = f"d_model is {sizes['d_model']}, but it must be even"
        raise ValueError(msg, f"use {sizes['d_model'] + 1}")
    return {**sizes, **params.model_dump()}


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, labels = arguments["d_hidden"], arguments["labels"]
    return {
        "hidden.weight": (hidden, arguments["d_model"]),
        "hidden.bias": (hidden,),
        "norm.weight": (hidden,),
        "norm.bias": (hidden,),
        "out.weight": (labels, hidden),
        "out.bias": (labels,),
    }


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the first layer at every boundary and the second layer for every span with i <= j."""
    hidden, t = arguments["d_hidden"], sizes["t"]
    boundaries = (t + 1) * arguments["d_model"]
    spans = t * (t + 1) // 2 * arguments["labels"]
    work: int = 2 * sizes["b"] * hidden * (boundaries + spans)
    return work


SPAN_SCORE = BlockType(
    name="span_score",
    mixes="span",
    onnx_form="_spans=.pooling.span_onnx:all_spans",
    doc="Score every span of a sequence from the difference v_ij of the vectors at its two "
    "boundaries; W' relu(norm(W v_ij + b)) + b'.",
    source="Stern et al. 2017, section 3.1; Kitaev & Klein 2018, section 2",
    params=SpanScoreParams,
    signature=_signature,
    arguments=_arguments,
    weights=_weights,
    flops=_flops,
    module=".pooling.span_module:SpanScore",
    example={"labels": 5, "d_hidden": 6},
    example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
)
