"""The inputs and outputs that each task requires of a spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...data.treebank.tetra import TAGS

if TYPE_CHECKING:
    from ..run import Run

PAIR = {"source": "ids", "source_mask": "mask", "target": "ids"}
"""Inputs of a spec that maps a source to a target, and their kinds."""
WORDS = {
    "pieces": "ids",
    "pieces_mask": "mask",
    "characters": "ids",
    "characters_mask": "mask",
    "source_mask": "mask",
}
"""Inputs of the spec of a parser that reads words, and their kinds."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a task requires of a spec."""

    task: str
    """Name of the task, for messages."""
    inputs: Mapping[str, str]
    """Required inputs and their kinds."""
    outputs: tuple[str, ...]
    """Required outputs."""
    steps: bool = False
    """Whether the spec must decode step by step."""


TRANSLATION = Needs("translation", PAIR, ("logits",), steps=True)
MASK_PREDICT = Needs("mask-predict", {**PAIR, "target_mask": "mask"}, ("logits", "lengths"))
CHART = Needs("parsing by charts", WORDS, ("score", "tags"))
TAGGING = Needs("parsing by tags", WORDS, TAGS)
OF_TASK = {"translation": TRANSLATION, "mask_predict": MASK_PREDICT}
OF_DECODER = {
    "sequence": replace(TRANSLATION, task="parsing by sequences"),
    "chart": CHART,
    "tags": TAGGING,
}
"""Needs of each value of `parsing.decoder`."""


def needs_of(run: Run) -> Needs:
    """Return what the task of a run requires of its spec."""
    return OF_DECODER[run.parsing.decoder] if run.task == "parsing" else OF_TASK[run.task]
