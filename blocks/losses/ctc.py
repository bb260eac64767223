"""Connectionist temporal classification: labels without an alignment to the frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Flag, Params, Several


class CTCParams(Params):
    """Params of `ctc`."""

    blank: Several = 0
    """Class of frames without a label; by default the padding id, which is never a label."""
    zero_infinity: Flag = True
    """Whether a sentence with fewer frames than its labels need, whose loss is infinite, counts
    as 0 and gets no gradient."""
    per: Literal["tokens", "sentences"] = "tokens"
    """What training divides the loss by: the number of labels, or of sentences."""


def _signature(_: CTCParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("logits", "f[b s v]", "unnormalized scores of each frame"),
            port("labels", "ids:v[b t]", "labels; negative: no label"),
            port("mask", "mask[b s]?", "true at non-padding frames"),
            port("labels_mask", "mask[b t]?", "true at the labels that count"),
        ),
        outputs=(
            port("loss", "loss[]", "sum over the sentences"),
            port("nll", "score[]", "the same without a gradient"),
        ),
        behavior={"s": "full", "t": "full"},
    )


def _arguments(params: CTCParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor arguments.

    Raises:
        ValueError: the blank is not a class.
    """
    if params.blank >= sizes["v"]:
        msg = f"blank is {params.blank}, but there are only {sizes['v']} classes"
        raise ValueError(msg, f"use a class below {sizes['v']} that is no label, such as 0")
    return params.model_dump()


CTC = BlockType(
    name="ctc",
    mixes="",
    doc="Connectionist temporal classification: -log of the probability of all alignments of the "
    "labels with the frames, in which blanks and repetitions are removed.",
    source="Graves et al. 2006, sections 3 and 4",
    params=CTCParams,
    signature=_signature,
    arguments=_arguments,
    weighs=("labels", "labels_mask"),
    module=".losses.ctc_module:CTC",
    example={},
    example_inputs={
        "logits": "f[B S 11]",
        "labels": "ids:11[B T]",
        "mask": "mask[B S]",
        "labels_mask": "mask[B T]",
    },
)
