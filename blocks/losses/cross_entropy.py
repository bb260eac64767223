"""Cross-entropy: the loss of a choice among classes, such as the next token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ...graphs.ir.block_type import BlockType, Port, Signature, port
from ..params import Params, Probability


class CrossEntropyParams(Params):
    """Params of `cross_entropy`."""

    label_smoothing: Probability = 0.0
    """Probability mass taken from the label and spread over others."""
    spread: Literal["vocabulary", "others"] = "vocabulary"
    """Classes that share that mass: all of them, with the label (torch), or only the others
    (tensor2tensor, fairseq)."""


def labels_port(wired: frozenset[str]) -> Port:
    """Return the port of the labels of a choice among v classes: `classes` or `labels`."""
    if "classes" in wired and "labels" not in wired:
        return port("classes", "label:v[...]", "the right class; negative: does not count")
    doc = "the right id, instead of 'classes'; negative: does not count"
    return port("labels", "ids:v[...]", doc)


def _signature(_: CrossEntropyParams, wired: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("logits", "f[... v]", "unnormalized scores of the classes"),
            labels_port(wired),
            port("mask", "mask[...]?", "true at the items that count; without it, all"),
            port("items", "len[b]?", "what a row counts in the mean, instead of its items"),
        ),
        outputs=(
            port("loss", "loss[]", "sum over the items that count"),
            port("nll", "score[]", "the sum without smoothing; no gradient"),
        ),
    )


def _arguments(params: CrossEntropyParams, _: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor arguments: only the params.

    Raises:
        ValueError: `spread` is set, but nothing is spread.
    """
    if params.spread != "vocabulary" and params.label_smoothing == 0.0:
        msg = f"spread is '{params.spread}', which has no effect, because label_smoothing is 0"
        raise ValueError(msg, "remove 'spread', or set label_smoothing, such as 0.1")
    return params.model_dump()


CROSS_ENTROPY = BlockType(
    name="cross_entropy",
    mixes="",
    doc="Cross-entropy of logits and labels, with label smoothing; -sum_v q_v log p_v, with "
    "p = softmax(logits) and q the smoothed label.",
    source="Szegedy et al. 2016, section 7; Vaswani et al. 2017, section 5.4",
    params=CrossEntropyParams,
    signature=_signature,
    arguments=_arguments,
    weighs=("labels", "classes", "mask", "items"),
    takes_linear_output=True,
    logits_ports=("logits",),
    module=".losses.cross_entropy_module:CrossEntropy",
    example={"label_smoothing": 0.1},
    example_inputs={
        "logits": "f[B T 11]",
        "labels": "ids:11[B T]",
        "mask": "mask[B T]",
        "items": "len[B]",
    },
)
