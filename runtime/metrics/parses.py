"""EVALB as a metric: F1 of labeled brackets of predicted trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Protocol

from ...specs.findings import InputError
from ..data.treebank.trees import Tree
from ..decode.parsing.tree_repair import Repairs
from .evalb import COLLINS, percent, score
from .metric import Measured, Metric, refuse_other_length


class Parsed(Protocol):
    """A tree with how it was found."""

    @property
    def tree(self) -> Tree:
        """The tree."""

    @property
    def tags(self) -> tuple[str, ...]:
        """The parser's own tag of each word; empty if it predicts no tags."""

    @property
    def finished(self) -> bool:
        """Whether the output ended with an end token."""

    @property
    def repairs(self) -> Repairs:
        """Repairs that turned the output into a tree."""


class Evalb(Metric):
    """F1 over sentences of every length, in percent, with the settings of Collins (COLLINS.prm).

    The leaves of predicted trees must have gold tags, because the scorer drops punctuation by its
    tag; `details` contains the accuracy of the parser's own tags.
    """

    takes: ClassVar[tuple[str, ...]] = ("tree",)

    type: Literal["evalb"] = "evalb"

    def measure(self, predictions: Sequence[Any], references: Sequence[Any]) -> Measured:
        """Compare trees, parses or None with gold trees."""
        refuse_other_length(predictions, references)
        gold = [_tree(value, number) for number, value in enumerate(references, 1)]
        repairs, malformed, unfinished, tags, right = Repairs(), 0, 0, 0, 0
        lines = []
        for number, (parse, tree) in enumerate(zip(predictions, gold, strict=True), 1):
            if parse is None:
                lines.append("")
                continue
            lines.append(str(_tree(getattr(parse, "tree", parse), number)))
            if isinstance(parse, Tree | str):
                continue
            found: Parsed = parse
            repairs += found.repairs
            malformed += found.repairs.any
            unfinished += not found.finished
            tags += len(found.tags)
            if found.tags:
                leaves = tree.leaves()
                pairs = zip(found.tags, leaves, strict=True)
                right += sum(own == leaf.tag for own, leaf in pairs)
        scores = score(map(str, gold), lines, COLLINS)
        details = {
            "all": scores.all.as_json(),
            f"length<={scores.cutoff}": scores.short.as_json(),
            "malformed": malformed,
            "unfinished": unfinished,
            "repairs": repairs.total,
        }
        if tags:
            details["own_tagging_accuracy"] = percent(right, tags)
        return Measured(scores.all.f1, "evalb|parameters:COLLINS", details)


def _tree(value: Any, number: int) -> Any:
    """Return a tree, or its text in brackets.

    Raises:
        InputError: it is neither.
    """
    if isinstance(value, Tree):
        return value
    raise InputError(
        f"row {number} is {type(value).__name__}, not a tree",
        help="use the metric with a column of trees and a predictor that answers with trees",
    )
