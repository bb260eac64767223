"""Losses of single numbers: binary cross-entropy and mean squared error."""

from __future__ import annotations

from ...graphs.ir.block_type import BlockType, NoParams, Port, Signature, port
from ..params import no_arguments


def _binary_ports(wired: frozenset[str]) -> tuple[Port, Port]:
    """Return the ports of the logits and of the labels, of which there are three forms."""
    logits = port("logits", "f[... 1]", "one unnormalized score for each item")
    if "labels" not in wired and "classes" in wired:
        doc = "1 or 0 for each item; negative: does not count"
        return logits, port("classes", "label:2[...]", doc)
    if "labels" not in wired and "truth" in wired:
        return logits, port("truth", "mask[...]", "whether each item is positive")
    doc = "a number from 0 to 1 for each score; or wire 'classes' or 'truth'"
    return port("logits", "f[... v]", "unnormalized scores"), port("labels", "f[... v]", doc)


def _binary_signature(_: NoParams, wired: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            *_binary_ports(wired),
            port("mask", "mask[...]?", "true at the items that count; without it, all"),
        ),
        outputs=(port("loss", "loss[]", "sum over the items that count"),),
    )


BINARY_CROSS_ENTROPY = BlockType(
    name="binary_cross_entropy",
    mixes="",
    doc="Binary cross-entropy of logits and labels, the mean over the scores of an item; "
    "-q log s(x) - (1 - q) log (1 - s(x)), with s the logistic function.",
    source="Clark et al. 2020, section 2; Goodfellow et al. 2016, section 6.2.2.2",
    signature=_binary_signature,
    arguments=no_arguments,
    weighs=("labels", "classes", "truth", "mask"),
    module=".losses.elementwise_module:BinaryCrossEntropy",
    example_inputs={"logits": "f[B T 1]", "classes": "label:2[B T]", "mask": "mask[B T]"},
)


def _squared_ports(wired: frozenset[str]) -> tuple[Port, Port]:
    """Return the ports of the prediction and of what it should be: a vector or a number."""
    if "target" not in wired and "numbers" in wired:
        doc = "what it should be, as from a column of numbers"
        return port("x", "f[... 1]", "the prediction"), port("numbers", "f[...]", doc)
    doc = "the vector that it should be; or wire 'numbers'"
    return port("x", "f[... d]", "the prediction"), port("target", "f[... d]", doc)


def _squared_signature(_: NoParams, wired: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            *_squared_ports(wired),
            port("mask", "mask[...]?", "true at the items that count; without it, all"),
        ),
        outputs=(port("loss", "loss[]", "sum over the items that count"),),
    )


MEAN_SQUARED_ERROR = BlockType(
    name="mean_squared_error",
    mixes="",
    doc="Mean squared error of vectors or numbers, the mean over the features of an item; "
    "mean_d (x_d - target_d)^2.",
    source="Bishop 2006, section 3.1.1",
    signature=_squared_signature,
    arguments=no_arguments,
    weighs=("target", "numbers", "mask"),
    module=".losses.elementwise_module:MeanSquaredError",
    example_inputs={"x": "f[B T 8]", "target": "f[B T 8]", "mask": "mask[B T]"},
)
