"""EVALB's report of a parser, as `weft evaluate` prints it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...plugin import one_file, read_lines, refuse_test_set, test_rows, write_beside
from ...runtime.cli.common import terminal
from .metrics.evalb import COLLINS, read_settings
from .metrics.evalb_report import report, summaries
from .metrics.metric import measure, rows, trees_of
from .treebank import TreesSettings
from .trees.reader import read_bank

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ... import Model
    from .decode.parse import Parse
    from .metrics.metric import Measured
    from .trees.trees import Tree


def evaluate(
    model: Model,
    *,
    trees: str | None,
    prm: str | None,
    per_sentence: bool,
    test: str | None,
    root: str | None,
    out: str | None,
) -> Iterator[tuple[dict[str, Any], str]]:
    """Parse each test set, and yield its figures and EVALB's report.

    Args:
        model: a parser.
        trees: file of gold trees, instead of a test set.
        prm: parameter file of EVALB.
        per_sentence: whether to print a row for every sentence.
        test: name of a test set of the run; None for all.
        root: folder of the data; default: that of the run.
        out: file for the parses.

    Raises:
        InputError: no test set has that name, or a file cannot be read or written.
    """
    banks = _banks(model, trees, test, root)
    one_file(out, banks)
    settings = COLLINS
    if prm is not None:
        settings = read_settings("\n".join(read_lines(prm)), prm)
    predictor: Any = model.predictor()
    for name, gold in banks.items():
        terminal.notice(f"{name}: parsing {len(gold):,} sentences")
        counter = terminal.Counter("sentences parsed")
        measured = measure(predictor.parser, gold, settings, warn=_warn, callback=counter.more)
        counter.close()
        if out:
            write_beside(Path(out), _lines(measured.parses), "file")
        used = model.predictor_settings().model_dump(mode="json")
        figures = {"test": name, "predictor": used, **measured.as_json()}
        yield figures, _report(name, measured, every=per_sentence)


def _warn(number: int, problem: str) -> None:
    terminal.warn(number, problem, "tree")


def _report(name: str, measurement: Measured, *, every: bool) -> str:
    text = report(measurement.scores) if every else summaries(measurement.scores)
    return "\n".join((name, text, *rows(measurement.as_json()), ""))


def _lines(parses: Iterable[Parse | None]) -> bytes:
    return "".join("\n" if parse is None else f"{parse.tree}\n" for parse in parses).encode()


def _banks(
    model: Model, trees: str | None, test: str | None, root: str | None
) -> dict[str, list[Tree]]:
    """Return the gold trees of each test set, by name.

    Raises:
        InputError: no test set has that name, or its trees cannot be read.
    """
    run = model.answering.run
    if trees:
        refuse_test_set("--trees", test, root)
        path = Path(trees).resolve()
        readers = [split.settings for split in run.data.splits().values()]
        parsing = next(split.parsing for split in readers if isinstance(split, TreesSettings))
        return {trees: trees_of(read_bank((path.name,), str(path.parent), parsing))}
    return {
        name: trees_of(row[str(run.answers)] for row in test_set)
        for name, test_set in test_rows(model, None, test, root).items()
    }
