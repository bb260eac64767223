"""Chart loss: how improbable labeled trees are, given a score for every label of every span."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import Arguments, BlockType, Signature, never, port
from ..params import Params


class ChartCrossEntropyParams(Params):
    """Params of `chart_cross_entropy`: none."""


def _signature(_: ChartCrossEntropyParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("score", "score[b s s l]", "scores of the labels of the span from i to j"),
            port("first", "pos[b n]", "first word of each labeled span of the tree; -1 is padding"),
            port("last", "pos[b n]", "last word of each labeled span, inclusive; -1 is padding"),
            port("label", "label:l[b n]", "label of each labeled span; -1 is padding"),
            port("binary", "score[b]", "log of the number of binary trees that reduce to the tree"),
            port("known", "mask[b]", "false for a sentence that has no loss"),
            port("mask", "mask[b s]?", "true at words"),
            port("symbols", "len[b]?", "what a sentence counts; 1 if it is known by default"),
        ),
        outputs=(
            port("loss", "loss[]", "negative log-likelihood of the trees, summed over sentences"),
            port("nll", "score[]", "the same, detached"),
        ),
        behavior={"s": "full", "n": "full"},
    )


def _arguments(_: ChartCrossEntropyParams, __: Arguments) -> dict[str, Any]:
    return {}


def _sequential(_: Arguments, sizes: Mapping[str, int]) -> int:
    """Return the number of widths of spans, which the inside algorithm visits in turn."""
    return sizes["s"]


CHART_CROSS_ENTROPY = BlockType(
    name="chart_cross_entropy",
    mixes="",
    doc="Negative log-likelihood of labeled trees, given a score of every label of every span; "
    "log sum over labeled trees of exp(sum of scores) - log of the same sum over those binary "
    "trees that reduce to the right one. A span without a label has score 0.",
    source="Stern et al. 2017, section 3.1; as a random field: Zhang et al. 2020, section 2",
    params=ChartCrossEntropyParams,
    signature=_signature,
    arguments=_arguments,
    sequential=_sequential,
    hops=never,
    module=".losses.tree_crf_module:ChartCrossEntropy",
    loops=True,
    weighs=("known", "symbols"),
    example_inputs={
        "score": "score[B T T 4]",
        "first": "pos[B S]",
        "last": "pos[B S]",
        "label": "label:4[B S]",
        "binary": "score[B]",
        "known": "mask[B]",
        "mask": "mask[B T]",
        "symbols": "len[B]",
    },
)
