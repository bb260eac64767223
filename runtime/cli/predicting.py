"""The command `weft predict`, and how `weft evaluate` measures the models of objectives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import Field

from ...specs.files import write_beside
from ...specs.findings import InputError, did_you_mean
from .common import terminal
from .common.command import DECODING, command, wrong
from .common.models import PlaceUncompiled, open_checkpoints
from .common.parameters import (
    Checkpoint,
    argument,
    complete_files,
    complete_predictors,
    option,
    out_option,
    overridden,
    overrides_option,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from ..metrics.metric import Measured
    from ..model.model import Model

Predictor = Annotated[
    str | None,
    option(
        "--predictor",
        "Predict in this way instead of the run's, such as beam or argmax.",
        metavar="TYPE",
        complete=complete_predictors,
    ),
]
Overrides = Annotated[
    list[str] | None,
    overrides_option(
        "Override a setting of the predictor, such as beam=8. Repeat the option for several."
    ),
]


@command(
    DECODING,
    "weft predict outputs/genre/averaged rows.jsonl -o answers.jsonl",
    'echo \'{"text": "A dog runs."}\' | weft predict outputs/genre/averaged',
    "weft predict outputs/m30k/best rows.jsonl --predictor beam --set beam=8 --details",
    note="A row is a JSON object with the raw values of the columns that the model reads, as in "
    "its data; other keys are ignored. Images and sounds are paths. Each answer is one line of "
    "JSON, in the order of the rows.",
)
def predict(
    checkpoint: Checkpoint,
    source: Annotated[
        str | None,
        argument("ROWS", "File of JSON lines, plain or gzip. [default: stdin]", complete_files),
    ] = None,
    *,
    out: Annotated[str | None, out_option("File to write. [default: standard output]")] = None,
    predictor: Predictor = None,
    overrides: Overrides = None,
    answers: Annotated[
        str | None,
        option("--answers", "Column that is predicted. [default: that of the run]", metavar="NAME"),
    ] = None,
    details: Annotated[
        bool,
        typer.Option(
            "--details",
            help="Write objects with the score, the probabilities of classes and other answers.",
        ),
    ] = False,
    buffer: Annotated[
        int,
        Field(ge=1),
        typer.Option("--buffer", help="Number of rows to read ahead; 1 answers each immediately."),
    ] = 1000,
    progress: Annotated[
        bool,
        typer.Option("--progress", help="Count rows on stderr even if it is not a terminal."),
    ] = False,
    place: PlaceUncompiled,
) -> None:
    """Answer rows of JSON lines with a model that an objective trained.

    Raises:
        InputError: the checkpoint cannot be opened, a row is invalid, or the predictor does not
            fit.
    """
    from ..model.answering import as_json, record_of
    from .decoding import counter_for

    model = open_checkpoints(checkpoint, None, place, compiled=False)
    ready = model.predictor(predictor_of(predictor, overrides), answers=answers)
    reading = model.answering
    rows = _rows(source)
    counter = counter_for("rows answered", out, asked=progress)
    with terminal.writing(out) as file:
        try:
            while part := [reading.raw(row) for row in islice(rows, buffer)]:
                found = ready.answers(part)
                for one in found:
                    value = record_of(one) if details else as_json(one.value)
                    file.write(json.dumps(value, ensure_ascii=False) + "\n")
                file.flush()
                if counter is not None:
                    counter.more(len(part))
        finally:
            if counter is not None:
                counter.close()


def predictor_of(name: str | None, overrides: list[str] | None) -> str | dict[str, Any] | None:
    """Return the predictor that the user gave: a name, changed settings, or None for the run's."""
    changes = overridden(overrides)
    if not changes:
        return name
    return changes if name is None else {"type": name, **changes}


def refuse_foreign(predictor: object, others: object, *, of_objective: bool) -> None:
    """Refuse options that do not apply to a model.

    Args:
        predictor: what the user gave with `--predictor` and `--set`.
        others: the options of searches and parsers.
        of_objective: whether test sets of a model that an objective trained are measured.

    Raises:
        BadParameter: an option does not apply.
    """
    if of_objective and others:
        msg = "an objective trained this model: use --predictor and --set, not options of searches"
        raise wrong("--set", msg)
    if predictor and not of_objective:
        raise wrong("--predictor", "it is for test sets of models that an objective trained")


def _rows(source: str | None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file of JSON lines.

    Raises:
        InputError: a line is not a JSON object.
    """
    for number, line in enumerate(terminal.text_lines(source, "it is no row"), 1):
        place = f"{source or 'standard input'}, line {number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError(f"the line is not JSON: {error}", place=place) from error
        if not isinstance(row, dict):
            raise InputError(
                "the line is not a JSON object",
                place=place,
                help='write the values by column, such as {"text": "A dog runs."}',
            )
        yield row


def evaluate_objective(
    model: Model,
    test: str | None,
    root: str | None,
    out: str | None,
    predict: str | dict[str, Any] | None,
    *,
    shown: bool,
) -> list[dict[str, Any]]:
    """Return the metrics of the run on each test set.

    Args:
        model: a model that an objective trained.
        test: name of one of the run's test sets, or `valid`; None is all test sets.
        root: folder of the data; default: that of the run.
        out: file for the answers, as JSON lines.
        predict: as for `Model.predictor`.
        shown: whether to print each report.

    Raises:
        InputError: there is no such test set, or its files are wrong.
    """
    from ..model.answering import as_json

    reading = model.answering
    names = _chosen(test, reading.run.data.test)
    if out and len(names) > 1:
        raise InputError(
            f"cannot write the answers of {len(names)} test sets into one file",
            place=out,
            help=f"choose one with --test: {', '.join(names)}",
        )
    reports = []
    for name in names:
        rows = reading.rows(name, root)
        terminal.notice(f"{name}: predicting {len(rows):,} rows")
        counter = terminal.Counter("rows predicted")
        models = (model.module, *model.others)
        found, answers = reading.measured(
            models, rows, predict, half=model.half, progress=counter.more
        )
        counter.close()
        if out:
            lines = (json.dumps(as_json(one), ensure_ascii=False) + "\n" for one in answers)
            write_beside(Path(out), "".join(lines).encode(), "file")
        reports.append(_report(name, len(rows), found))
        if shown:
            print(report_text(reports[-1]))
    return reports


def _report(name: str, rows: int, found: dict[str, Measured]) -> dict[str, Any]:
    """Return the report of a test set as plain data."""
    return {
        "test": name,
        "rows": rows,
        "scores": {key: one.value for key, one in found.items()},
        "signatures": {key: one.signature for key, one in found.items() if one.signature},
        "details": {key: dict(one.details) for key, one in found.items() if one.details},
    }


def report_text(report: dict[str, Any]) -> str:
    """Return the report of a test set as text."""
    width = max(map(len, report["scores"]), default=0)
    lines = [f"{report['test']}: {report['rows']:,} rows"]
    for name, value in report["scores"].items():
        signature = report["signatures"].get(name, "")
        lines.append(f"  {name:{width}}  {value:10.4f}  {signature}".rstrip())
    return "\n".join(lines)


def _chosen(test: str | None, known: Collection[str]) -> list[str]:
    """Return the names of the test sets to evaluate.

    Raises:
        InputError: no test set has that name, or the run has none.
    """
    if test is None and not known:
        raise InputError(
            "the run has no test sets", help="add them to 'data.test', or give --test valid"
        )
    if test is not None and test not in (*known, "valid"):
        help_ = did_you_mean(test, [*known, "valid"])
        raise InputError(f"no test set '{test}'", place="--test", help=help_)
    return [*known] if test is None else [test]
