"""The commands `weft evaluate` and `weft attend`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...specs.files import write_beside
from ...specs.findings import InputError
from ..data.text_files import read_lines
from .common import terminal
from .common.command import DECODING, command, wrong
from .common.models import (
    OF_THE_RUN,
    Constrained,
    Place,
    PlaceUncompiled,
    Sample,
    Sampling,
    Search,
    open_checkpoints,
    search_of,
)
from .common.parameters import (
    Checkpoint,
    Json,
    Metrics,
    argument,
    file_option,
    option,
    out_option,
    refuse_test_set,
)
from .measuring import chosen_metrics, evaluated
from .predicting import Overrides as PredictorOverrides
from .predicting import (
    Predictor,
    changed_predictor,
    named,
    predictor_settings,
    refuse_idle,
    test_rows,
)

if TYPE_CHECKING:
    from ...extensions.parsing.decode.parse import Parse
    from ...extensions.parsing.metrics.metric import Measured
    from ...extensions.parsing.trees.trees import Tree
    from ..model.model import Model

_PARSERS = "Parsers"


@command(
    DECODING,
    "weft evaluate outputs/multi30k-en-de/averaged --test test_2016_flickr --beam 5",
    "weft evaluate outputs/multi30k-en-de/averaged --metric ter --metric exact_match",
    note=OF_THE_RUN,
    memory="give --precision bfloat16, or a smaller --beam or --max-length; batches have at most"
    " 4,096 source tokens times the beam, which cannot be set",
)
def evaluate(
    checkpoint: Checkpoint,
    *,
    test: Annotated[
        str | None,
        option("--test", "One of the run's test sets. [default: all of them]", metavar="NAME"),
    ] = None,
    data_root: Annotated[
        str | None,
        file_option("--data-root", "Folder with the test data. [default: data.root of the run]"),
    ] = None,
    source: Annotated[
        str | None, file_option("--source", "Lines to translate, plain text or compressed.")
    ] = None,
    target: Annotated[
        str | None, file_option("--target", "Their reference translations, line by line.")
    ] = None,
    metrics: Metrics = None,
    out: Annotated[
        str | None, out_option("Also write the translations or parses to this file.")
    ] = None,
    json_: Json = False,
    trees: Annotated[
        str | None,
        file_option("--trees", "Gold trees to use instead of a test set.", _PARSERS),
    ] = None,
    prm: Annotated[
        str | None,
        file_option(
            "--prm", "EVALB parameter file. [default: the settings of COLLINS.prm]", _PARSERS
        ),
    ] = None,
    each: Annotated[
        bool,
        typer.Option(
            "--each", help="Also print EVALB's row for every sentence.", rich_help_panel=_PARSERS
        ),
    ] = False,
    constrained: Constrained = None,
    predictor: Predictor = None,
    overrides: PredictorOverrides = None,
    search: Search,
    sample: Sample = False,
    sampling: Sampling,
    place: Place,
) -> None:
    """Print the metrics of a checkpoint's run on its test sets; for a parser, EVALB's report.

    Of an imported translation model, print BLEU, chrF and perplexity.

    Raises:
        InputError: the checkpoint or a file cannot be read, or an option does not apply to the
            model.
    """
    if bool(source) != bool(target):
        raise wrong("--source", "a text needs both --source and --target")
    if each and json_:
        raise wrong("--each", "it has no effect with --json")
    searching = search_of(search, sampling, sample=sample)
    changes = changed_predictor(predictor, overrides, searching)
    model = open_checkpoints(checkpoint, None, place)
    if model.trained is None and predictor is None and not overrides:
        changes = searching  # an imported model has no predictor
    refuse_idle(model, changes, searching)
    if model.parses:
        if source:
            raise InputError(
                "a parser is measured on trees",
                help="give --trees FILE, or leave out --source and --target",
            )
        if metrics:
            raise wrong("--metric", "a parser is measured by EVALB")
        if constrained is not None:
            changes = {**named(changes), "constrained": constrained}
        banks = _banks(model, trees, test, data_root)
        _one_file(out, banks)
        reports = _parsers(model, changes, banks, prm, each, out, json_)
    else:
        if trees or prm or each or constrained is not None:
            raise InputError(
                "--trees, --prm, --each and --constrained are for parsers, and this is not one",
                place=checkpoint,
                help="give --source and --target, or --test",
            )
        pair = (str(source), str(target)) if source else None
        tests = test_rows(model, pair, test, data_root)
        _one_file(out, tests)
        chosen = chosen_metrics(model, metrics or (), changes)
        reports = [
            evaluated(model, name, rows, chosen, out, changes, shown=not json_)
            for name, rows in tests.items()
        ]
    if json_:
        print(json.dumps(reports, indent=2))


def _one_file(out: str | None, tests: Collection[str]) -> None:
    """Refuse to write the outputs of several test sets into one file.

    Raises:
        InputError: there are several test sets.
    """
    if out and len(tests) > 1:
        raise InputError(
            f"cannot write the outputs of {len(tests)} test sets into one file",
            place=out,
            help=f"choose one with --test: {', '.join(tests)}",
        )


def _parsers(
    model: Model,
    changes: str | dict[str, Any] | None,
    banks: dict[str, list[Tree]],
    prm: str | None,
    each: bool,  # noqa: FBT001 - private
    out: str | None,
    json_: bool,  # noqa: FBT001 - private
) -> list[dict[str, Any]]:
    """Parse each test set, print EVALB's report unless JSON is wanted, and return the reports."""
    from ...extensions.parsing.metrics.evalb import COLLINS, read_settings
    from ...extensions.parsing.metrics.metric import measure

    settings = COLLINS
    if prm is not None:
        settings = read_settings("\n".join(read_lines(prm)), prm)
    predictor: Any = model.predictor(changes)
    reports = []
    for name, gold in banks.items():
        terminal.notice(f"{name}: parsing {len(gold):,} sentences")
        counter = terminal.Counter("sentences parsed")
        found = measure(predictor.parser, gold, settings, warn=_warn, callback=counter.more)
        counter.close()
        if out:
            write_beside(Path(out), _lines(found.parses), "file")
        used = predictor_settings(model, changes)
        reports.append({"test": name, "predictor": used, **found.as_json()})
        if not json_:
            print(_report(name, found, every=each))
    return reports


def _warn(number: int, problem: str) -> None:
    terminal.warn(number, problem, "tree")


def _report(name: str, found: Measured, *, every: bool) -> str:
    from ...extensions.parsing.metrics.evalb_report import report, summaries
    from ...extensions.parsing.metrics.metric import rows

    text = report(found.scores) if every else summaries(found.scores)
    return "\n".join((name, text, *rows(found.as_json()), ""))


def _lines(parses: Iterable[Parse | None]) -> bytes:
    return "".join("\n" if one is None else f"{one.tree}\n" for one in parses).encode()


def _banks(
    model: Model, trees: str | None, test: str | None, root: str | None
) -> dict[str, list[Tree]]:
    """Return the gold trees of each test set, by name.

    Raises:
        InputError: no test set has that name, or its trees cannot be read.
    """
    from ...extensions.parsing.metrics.metric import trees_of
    from ...extensions.parsing.treebank import TreesSettings
    from ...extensions.parsing.trees.reader import read_bank

    answering = model.answering
    if trees:
        refuse_test_set("--trees", test, root)
        path = Path(trees).resolve()
        readers = [split.settings for split in answering.run.data.splits().values()]
        parsing = next(one.parsing for one in readers if isinstance(one, TreesSettings))
        return {trees: trees_of(read_bank((path.name,), str(path.parent), parsing))}
    return {
        name: trees_of(row[str(answering.run.answers)] for row in rows)
        for name, rows in test_rows(model, None, test, root).items()
    }


@command(
    DECODING,
    "weft attend outputs/demo/averaged 'three hundred and seven' -o heads.html",
    note=OF_THE_RUN,
)
def attend(
    checkpoint: Checkpoint,
    text: Annotated[str, argument("TEXT", "A sentence to translate.")],
    *,
    out: Annotated[str, out_option("File to write: .html (interactive), .svg, .pdf or .png.")],
    target: Annotated[
        str | None,
        option(
            "--target",
            "Input of the decoder. [default: the model's own translation]",
            metavar="TEXT",
        ),
    ] = None,
    only: Annotated[
        str | None,
        option(
            "--only",
            "Show one type of attention, such as 'target reads source'. [default: all]",
            metavar="WHAT",
        ),
    ] = None,
    search: Search,
    place: PlaceUncompiled,
) -> None:
    """Show the attention weights of each head for a sentence and its translation.

    Raises:
        InputError: the sentence is empty or too long, or the file cannot be written.
    """
    from ...graphs.draw.render import check_suffix
    from ..analysis.attention_page import SUFFIXES, groups_of, write_attention

    page = Path(out)
    check_suffix(page, SUFFIXES)
    model = open_checkpoints(checkpoint, search, place, compiled=False)
    target = target if target is not None else model.translate([text])[0]
    [maps] = model.attention([text], [target])
    groups = groups_of(model.graph, maps)
    if only is not None:
        chosen = [group for group in groups if group.title == only]
        if not chosen:
            raise InputError(
                f"no attention is called '{only}'",
                place="--only",
                help=f"choose among: {', '.join(group.title for group in groups)}",
            )
        groups = chosen
    print(write_attention(groups, page, f"{text} -> {target}"))
