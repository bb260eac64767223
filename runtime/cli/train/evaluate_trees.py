"""Evaluation of parsers with EVALB's scores, for `weft evaluate`."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Collection, Iterable
from pathlib import Path

from ....specs.files import write_beside
from ....specs.findings import InputError
from ... import api
from ...data.settings import Files
from ...data.text_files import read_lines
from ...data.treebank.reader import read_bank
from ...data.treebank.settings import ParsingSettings
from ...data.treebank.trees import Tree
from ...metrics.evalb import COLLINS, read_settings
from ...metrics.evalb_report import report, summaries
from ...tasks.parsing.measure import Measured, measure, rows, trees_of
from ...tasks.parsing.parse import Parse
from ...train.run import Run
from ..progress import Counter


def constrained(model: api.Model, options: Namespace) -> api.Model:
    """Return a parser with its tree constraint switched as the options request."""
    wanted = options.constrained
    return model if wanted is None else model.with_constraint(constrained=wanted)


def evaluate_trees(options: Namespace, model: api.Model) -> None:
    """Print EVALB's report of each test set, and how many outputs were repaired.

    Raises:
        InputError: no trees are named, or they cannot be read.
    """
    if options.source or options.target:
        raise InputError(
            "a parser is measured on trees",
            help="give --trees FILE, or leave out --source and --target",
        )
    settings = COLLINS
    if options.prm is not None:
        settings = read_settings("\n".join(read_lines(options.prm)), options.prm)
    model = constrained(model, options)
    reports = []
    banks = _banks(options, model)
    one_file(options, banks)
    for name, gold in banks.items():
        print(f"{name}: parsing {len(gold):,} sentences", file=sys.stderr)
        counter = Counter("sentences parsed")
        found = measure(model.parser, gold, settings, warn=_warn, callback=counter.more)
        counter.close()
        if options.out:
            write_beside(Path(options.out), _lines(found.parses), "file")
        reports.append({"test": name, "search": model.search.model_dump(), **found.as_json()})
        if not options.json:
            print(_text(name, found, every=options.each))
    if options.json:
        print(json.dumps(reports, indent=2))


def one_file(options: Namespace, tests: Collection[str]) -> None:
    """Refuse to write the outputs of several test sets into one file.

    Raises:
        InputError: there are several test sets.
    """
    if options.out and len(tests) > 1:
        raise InputError(
            f"cannot write the outputs of {len(tests)} test sets into one file",
            place=options.out,
            help=f"choose one with --test: {', '.join(tests)}",
        )


def _warn(number: int, problem: str) -> None:
    print(f"warning: tree {number}: {problem}", file=sys.stderr)


def _text(name: str, found: Measured, *, every: bool) -> str:
    text = report(found.scores) if every else summaries(found.scores)
    return "\n".join((name, text, *rows(found.as_json()), ""))


def _lines(parses: Iterable[Parse | None]) -> bytes:
    return "".join("\n" if one is None else f"{one.tree}\n" for one in parses).encode()


def _banks(options: Namespace, model: api.Model) -> dict[str, list[Tree]]:
    """Return the gold trees of each test set, by name.

    Raises:
        InputError: no test set has that name, or its trees cannot be read.
    """
    run = model.checkpoint.run
    parsing = ParsingSettings(**run.get("parsing", {}))
    if options.trees:
        path = Path(options.trees).resolve()
        files = Files(trees=(path.name,))
        return {options.trees: trees_of(read_bank(files, str(path.parent), parsing))}
    data = Run.model_validate(run).data
    if not data.test:
        raise InputError("the run has no test sets", help="give --trees FILE")
    if options.test is not None and options.test not in data.test:
        known = ", ".join(data.test)
        raise InputError(f"no test set '{options.test}'", help=f"known: {known}")
    root = options.data_root or data.root
    return {
        name: trees_of(read_bank(files, root, parsing))
        for name, files in data.test.items()
        if options.test in (None, name)
    }
