"""The commands `weft evaluate` and `weft attend`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...specs.files import write_beside
from ...specs.findings import InputError, did_you_mean
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
    constrain,
    open_checkpoints,
    search_of,
)
from .common.parameters import (
    Checkpoint,
    Json,
    argument,
    file_option,
    option,
    out_option,
)
from .decoding import two_sides
from .predicting import Overrides as PredictorOverrides
from .predicting import Predictor, evaluate_objective, predictor_of, refuse_foreign

if TYPE_CHECKING:
    from ..data.treebank.trees import Tree
    from ..decode.parsing.parse import Parse
    from ..metrics.parsing import Measured
    from ..model.model import Model

_PARSERS = "Parsers"


@command(
    DECODING,
    "weft evaluate outputs/multi30k-en-de/averaged --test test_2016_flickr --beam 5",
    note=OF_THE_RUN,
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
        str | None, file_option("--source", "Lines to translate, plain text or gzip.")
    ] = None,
    target: Annotated[
        str | None, file_option("--target", "Their reference translations, line by line.")
    ] = None,
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
    """Print BLEU, chrF and perplexity of a checkpoint; for a parser, EVALB's report.

    Of a model that an objective trained, print the metrics of its run.

    Raises:
        InputError: the checkpoint or a text cannot be read, or an option does not apply to the
            model.
    """
    from ..checkpoint.tokenizers import is_of_objective

    if bool(source) != bool(target):
        raise wrong("--source", "a text needs both --source and --target")
    model = open_checkpoints(
        checkpoint,
        search_of(search, sampling, sample=sample),
        place,
    )
    of_objective = is_of_objective(model.checkpoint) and not source
    changes = predictor_of(predictor, overrides)
    refuse_foreign(
        changes,
        trees or prm or each or constrained is not None or search or sample or sampling,
        of_objective=of_objective,
    )
    if of_objective:
        reports = evaluate_objective(model, test, data_root, out, changes, shown=not json_)
    elif model.task is not None and model.task.parses:
        if source:
            raise InputError(
                "a parser is measured on trees",
                help="give --trees FILE, or leave out --source and --target",
            )
        banks = _banks(model, trees, test, data_root)
        _one_file(out, banks)
        reports = _parsers(constrain(model, constrained), banks, prm, each, out, json_)
    else:
        if trees or prm or each or constrained is not None:
            raise InputError(
                "--trees, --prm, --each and --constrained are for parsers; this model translates",
                place=checkpoint,
                help="give --source and --target, or --test",
            )
        pair = (str(source), str(target)) if source else None
        texts = _texts(model, pair, test, data_root)
        _one_file(out, texts)
        reports = [_translated(model, name, *text, out) for name, text in texts.items()]
        if not json_:
            for report in reports:
                print(_text(report))
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


def _translated(
    model: Model, name: str, sources: list[str], references: list[str], out: str | None
) -> dict[str, Any]:
    """Translate a test set, write the translations if a file is named, and return the scores."""
    from ..decode.positions import refuse_long
    from ..metrics.text import score
    from ..tasks.registry import task_of

    reader = model.translator
    # Lazy: a model without a limit encodes nothing here.
    encoded = (map(reader.source.encode, sources), map(reader.target.encode, references))
    refuse_long(model.module, zip(*encoded, strict=True))
    terminal.notice(f"{name}: translating {len(sources):,} lines")
    found = list(reader.translate(sources, warn=terminal.warn))
    scores = score(found, references)
    unsmoothed = {**model.checkpoint.run, "loss": {"smoothing": 0.0}}
    task = task_of(unsmoothed, reader.source, reader.target)
    device = next(model.module.parameters()).device
    measured = task.perplexity(model.module, task.text_batches(sources, references), device)
    if out:
        lines = "".join(f"{line}\n" for line in found)
        write_beside(Path(out), lines.encode(), "file")
    return {
        "test": name,
        "lines": len(sources),
        "scores": scores.values,
        "signatures": scores.signatures,
        "perplexity": measured["perplexity"],
        "search": reader.search.model_dump(),
    }


def _text(report: dict[str, Any]) -> str:
    search = report["search"]
    setting = f"beam {search['beam']}, alpha {search['alpha']}"
    lines = [f"{report['test']}: {report['lines']:,} lines, {setting}"]
    names = {"bleu": "BLEU", "bleu_lc": "BLEU (lower-cased)", "chrf": "chrF"}
    for key, label in names.items():
        signature = report["signatures"][key]
        lines.append(f"  {label:18} {report['scores'][key]:6.2f}  {signature}")
    lines.append(
        f"  {'perplexity':18} {report['perplexity']:6.3f}  per target token, end token included"
    )
    return "\n".join(lines)


def _texts(
    model: Model, pair: tuple[str, str] | None, test: str | None, root: str | None
) -> dict[str, tuple[list[str], list[str]]]:
    """Return source and reference lines of the texts to evaluate, by name.

    Raises:
        InputError: no text is named, or it cannot be read.
    """
    from ...specs.reader import parse
    from ..data.settings import DataSettings
    from ..data.text_files import read_parallel

    if pair:
        return {pair[0]: two_sides(*pair)}
    data = model.checkpoint.run.get("data")
    if data is None:
        raise InputError("the checkpoint names no data", help="give --source and --target")
    settings = parse(DataSettings, data, f"{model.checkpoint.folder}/run.json")
    if not settings.test:
        raise InputError("the run has no test sets", help="give --source and --target")
    texts = {}
    for name in _chosen(test, settings.test):
        pairs = list(read_parallel(settings.test[name], root or settings.root))
        texts[name] = ([source for source, _ in pairs], [target for _, target in pairs])
    return texts


def _chosen(test: str | None, known: Collection[str]) -> list[str]:
    """Return the names of the test sets to evaluate.

    Raises:
        InputError: no test set has that name.
    """
    if test is not None and test not in known:
        help_ = did_you_mean(test, known)
        raise InputError(f"no test set '{test}'", place="--test", help=help_)
    return [name for name in known if test in (None, name)]


def _parsers(
    model: Model,
    banks: dict[str, list[Tree]],
    prm: str | None,
    each: bool,  # noqa: FBT001 - private
    out: str | None,
    json_: bool,  # noqa: FBT001 - private
) -> list[dict[str, Any]]:
    """Parse each test set, print EVALB's report unless JSON is wanted, and return the reports."""
    from ..metrics.evalb import COLLINS, read_settings
    from ..metrics.parsing import measure

    settings = COLLINS
    if prm is not None:
        settings = read_settings("\n".join(read_lines(prm)), prm)
    reports = []
    for name, gold in banks.items():
        terminal.notice(f"{name}: parsing {len(gold):,} sentences")
        counter = terminal.Counter("sentences parsed")
        found = measure(model.parser, gold, settings, warn=_warn, callback=counter.more)
        counter.close()
        if out:
            write_beside(Path(out), _lines(found.parses), "file")
        reports.append({"test": name, "search": model.search.model_dump(), **found.as_json()})
        if not json_:
            print(_report(name, found, every=each))
    return reports


def _warn(number: int, problem: str) -> None:
    terminal.warn(number, problem, "tree")


def _report(name: str, found: Measured, *, every: bool) -> str:
    from ..metrics.evalb_report import report, summaries
    from ..metrics.parsing import rows

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
    from ...specs.reader import parse
    from ..data.settings import Files
    from ..data.treebank.reader import read_bank
    from ..data.treebank.settings import ParsingSettings
    from ..metrics.parsing import trees_of
    from ..train.run import Run

    run = model.checkpoint.run
    parsing = ParsingSettings(**run.get("parsing", {}))
    if trees:
        path = Path(trees).resolve()
        files = Files(trees=(path.name,))
        return {trees: trees_of(read_bank(files, str(path.parent), parsing))}
    data = parse(Run, run, f"{model.checkpoint.folder}/run.json").data
    if not data.test:
        raise InputError("the run has no test sets", help="give --trees FILE")
    return {
        name: trees_of(read_bank(data.test[name], root or data.root, parsing))
        for name in _chosen(test, data.test)
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
    out: Annotated[str, out_option("File to write: .html (interactive) or .png.")],
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
