"""Evaluation of parsers with EVALB, also as a metric, and counts of repaired outputs.

Before scoring, the gold tags are copied onto the leaves, because the scorer drops
punctuation by its tag; the parser's own tagging accuracy is computed separately.

Source: Vaswani et al. 2017, section 6.3; Vinyals et al. 2015, section 3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ....plugin import InputError
from ....runtime.metrics import metric
from ..decode.parse import Parse, Parser, Warn
from ..decode.tree_repair import Repairs
from ..trees.trees import Tree
from .evalb import COLLINS, EvalbScores, EvalbSettings, percent, score

AT_ONCE = 500
"""Sentences that are sorted by length together, to form batches."""


@dataclass(frozen=True, slots=True)
class MeasuredParses:
    """Parses and their scores."""

    parses: tuple[Parse | None, ...]
    scores: EvalbScores
    malformed: int
    """Outputs that were not a tree over the words."""
    unfinished: int
    """Outputs that reached the length limit without an end token."""
    repairs: Repairs
    """Repairs, summed over all outputs."""
    tagged: int
    """Words that the parser tagged itself."""
    tags: int
    """Words whose own tag equals that of gold."""

    @property
    def f1(self) -> float:
        """F1 over sentences of every length, in percent."""
        return self.scores.all.f1

    def as_json(self) -> dict[str, Any]:
        """Return every figure by name."""
        tagging = {"own_tagging_accuracy": percent(self.tags, self.tagged)} if self.tagged else {}
        return {
            "all": self.scores.all.as_json(),
            f"length<={self.scores.cutoff}": self.scores.short.as_json(),
            "malformed": self.malformed,
            "unfinished": self.unfinished,
            "repairs": self.repairs.total,
            **tagging,
        }


def measure(
    parser: Parser,
    gold: Sequence[Tree],
    settings: EvalbSettings = COLLINS,
    *,
    warn: Warn | None = None,
    callback: Callable[[int], None] | None = None,
) -> MeasuredParses:
    """Parse the words of gold trees and score the parses.

    Args:
        parser: parser to evaluate.
        gold: gold trees; their tags are copied to the parses, but hidden from the parser.
        settings: EVALB settings.
        warn: called for each sentence that is too long.
        callback: called with 1 after each sentence.
    """
    parses: list[Parse | None] = []
    for parse in parser.parse((list(tree.leaves()) for tree in gold), buffer=AT_ONCE, warn=warn):
        parses.append(parse)
        if callback is not None:
            callback(1)
    return measured(parses, gold, settings)


def measured(
    parses: Sequence[Parse | None], gold: Sequence[Tree], settings: EvalbSettings = COLLINS
) -> MeasuredParses:
    """Score parses against gold trees."""
    repairs, malformed, unfinished, tags, right = Repairs(), 0, 0, 0, 0
    for parse, tree in zip(parses, gold, strict=True):
        if parse is None:
            continue
        repairs += parse.repairs
        malformed += parse.repairs.any
        unfinished += not parse.finished
        tags += len(parse.tags)
        if parse.tags:
            right += sum(
                tag == leaf.tag for tag, leaf in zip(parse.tags, tree.leaves(), strict=True)
            )
    lines = ("" if parse is None else str(parse.tree) for parse in parses)
    return MeasuredParses(
        parses=tuple(parses),
        scores=score(map(str, gold), lines, settings),
        malformed=malformed,
        unfinished=unfinished,
        repairs=repairs,
        tagged=tags,
        tags=right,
    )


def rows(measures: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines printed below EVALB's report."""
    yield f"{'Malformed outputs':<25} = {measures['malformed']:6d}"
    yield f"{'Unfinished outputs':<25} = {measures['unfinished']:6d}"
    yield f"{'Repairs':<25} = {measures['repairs']:6d}"
    if "own_tagging_accuracy" in measures:
        yield f"{'Own tagging accuracy':<25} = {measures['own_tagging_accuracy']:6.2f}"
    yield "The leaves have gold tags, so the tagging accuracy above is not the parser's own."


def trees_of(bank: Iterable[Tree | None]) -> list[Tree]:
    """Return the trees without skipped ones."""
    return [tree for tree in bank if tree is not None]


class Evalb(metric.Metric):
    """F1 over sentences of every length, in percent, with the settings of Collins (COLLINS.prm).

    The leaves of predicted trees must have gold tags, because the scorer drops punctuation by its
    tag; `details` contains the accuracy of the parser's own tags.  A reference that is None, such
    as a malformed tree that the reader skipped, does not count.
    """

    takes: ClassVar[tuple[str, ...]] = ("tree",)

    type: Literal["evalb"] = "evalb"

    def measure(self, predictions: Sequence[Any], references: Sequence[Any]) -> metric.Measured:
        """Compare trees, parses or None with gold trees."""
        metric.refuse_other_length(predictions, references)
        rows = list(enumerate(zip(predictions, references, strict=True), 1))
        complete = [(number, pair) for number, pair in rows if pair[1] is not None]
        scores = measured(
            [_parse(parse, number) for number, (parse, _) in complete],
            [_tree(tree, number) for number, (_, tree) in complete],
        )
        return metric.Measured(scores.f1, "evalb|parameters:COLLINS", scores.as_json())


def _parse(value: Any, number: int) -> Parse | None:
    """Return a parse, also of a tree alone.

    Raises:
        InputError: it is neither.
    """
    if value is None:
        return None
    tree = _tree(getattr(value, "tree", value), number)
    parse: Parse = Parse(tree) if value is tree else value
    return parse


def _tree(value: Any, number: int) -> Tree:
    """Return a value that must be a tree.

    Raises:
        InputError: it is something else.
    """
    if isinstance(value, Tree):
        return value
    raise InputError(
        f"row {number} is {type(value).__name__}, not a tree",
        help="use the metric with a column of trees and a predictor that answers with trees",
    )
