"""What `weft evaluate-parser` measures: gold trees, and EVALB's report of the parses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...plugin import refuse_test_set, test_rows
from ...runtime.cli.common import terminal
from .metrics.evalb_report import report, summaries
from .metrics.metric import measure, rows, trees_of
from .treebank import TreesSettings
from .trees.reader import read_bank

if TYPE_CHECKING:
    from ... import Model
    from .metrics.evalb import EvalbSettings
    from .metrics.metric import MeasuredParses
    from .trees.trees import Tree


def evaluated(model: Model, name: str, gold: list[Tree], settings: EvalbSettings) -> MeasuredParses:
    """Parse the words of gold trees, score the parses, and show progress.

    Args:
        model: a parser.
        name: name of the test set.
        gold: its trees.
        settings: settings of EVALB.
    """
    predictor: Any = model.predictor()
    terminal.notice(f"{name}: parsing {len(gold):,} sentences")
    counter = terminal.LineCounter("sentences parsed")
    measured = measure(
        predictor.parser,
        gold,
        settings,
        warn=lambda number, problem: terminal.warn(number, problem, "tree"),
        callback=counter.more,
    )
    counter.close()
    return measured


def report_text(name: str, measured: MeasuredParses, *, every: bool) -> str:
    """Return EVALB's report of a test set.

    Args:
        name: name of the test set.
        measured: its parses and their scores.
        every: whether to include a row for every sentence.
    """
    text = report(measured.scores) if every else summaries(measured.scores)
    return "\n".join((name, text, *rows(measured.as_json()), ""))


def gold_trees(
    model: Model, trees: str | None, test: str | None, root: str | None
) -> dict[str, list[Tree]]:
    """Return the gold trees of each test set, by name.

    Args:
        model: a parser.
        trees: file of gold trees, instead of a test set.
        test: name of a test set of the run; None for all.
        root: folder of the data; default: that of the run.

    Raises:
        InputError: no test set has that name, or its trees cannot be read.
    """
    run = model.answering.run
    if trees:
        refuse_test_set("--trees", test, root)
        path = Path(trees).resolve()
        readers = [split.settings for split in run.data.sources().values()]
        parsing = next(split.parsing for split in readers if isinstance(split, TreesSettings))
        return {trees: trees_of(read_bank((path.name,), str(path.parent), parsing))}
    return {
        name: trees_of(row[str(run.answers)] for row in test_set)
        for name, test_set in test_rows(model, None, test, root).items()
    }
