"""The command `weft predict`, and options of commands that use predictors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import Field

from ...specs.findings import InputError, did_you_mean
from ..data.readers.jsonl import is_blank, json_object
from ..data.text_files import STDIN
from ..decode.predictors.predictor import Answer
from .common.answering import Answered, InputRow
from .common.chunks import LineWork, Outputs, write_answers
from .common.command import DECODING, command
from .common.models import PlaceUncompiled, changed, open_checkpoints
from .common.parameters import (
    Checkpoint,
    On,
    Processes,
    argument,
    complete_files,
    complete_predictors,
    option,
    out_option,
    overridden,
    overrides_option,
    refuse_test_set,
)
from .common.reading import Mistakes, decoded_lines

if TYPE_CHECKING:
    from collections.abc import Collection

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
    "its data; other keys are ignored, and so are empty lines. Images and sounds are paths. Each "
    "answer is one line of JSON, in the order of the rows. The answer to a wrong row is an object "
    "with the key 'error'; the exit code is then 1.",
    memory="give a smaller --buffer: a batch has at most so many rows; or --device cpu",
)
def predict(
    checkpoint: Checkpoint,
    source: Annotated[
        str | None,
        argument(
            "ROWS", "File of JSON lines, plain or compressed. [default: stdin]", complete_files
        ),
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
        typer.Option("--buffer", help="Number of rows to read ahead."),
    ] = 1000,
    progress: Annotated[
        bool,
        typer.Option("--progress", help="Count rows on stderr even if it is not a terminal."),
    ] = False,
    processes: Processes = None,
    on: On = "local",
    placement: PlaceUncompiled,
) -> int:
    """Answer rows of JSON lines with a model that an objective trained.

    Raises:
        InputError: the checkpoint or the file cannot be opened, or the predictor does not fit.
    """
    chosen = predictor_of(predictor, overrides)
    work = Predicting(checkpoint, placement, source, chosen, answers, details, buffer)
    return write_answers(
        work,
        _rows(source),
        out,
        what="rows answered",
        on=on,
        processes=processes,
        progress=progress,
    )


@dataclass(frozen=True, slots=True)
class Predicting(LineWork):
    """The settings of `weft predict`."""

    predictor: str | dict[str, Any] | None
    answers: str | None
    details: bool
    buffer: int

    def open(self) -> Outputs:
        """Open the model, and return what answers rows."""
        from ..model.answering import as_json, record_of

        model = open_checkpoints(self.checkpoint, None, self.placement, compiled=False)
        raw = dict if model.trained is None else model.trained.raw
        model.predictor(self.predictor, answers=self.answers)  # refuses what does not fit

        def outputs(rows: Iterable[InputRow], mistakes: Mistakes) -> Iterator[str]:
            asked = Answered[Answer](rows, self.source, self.buffer, mistakes)
            ready = model.predictor(self.predictor, answers=self.answers, warn=asked.warn)
            parts = asked.batches(lambda values: ready.answers([raw(row) for row in values]))
            for row, answer in chain.from_iterable(parts):
                if answer is None:
                    value = mistakes.record(row.number)
                else:
                    value = record_of(answer) if self.details else as_json(answer.value)
                yield json.dumps(value, ensure_ascii=False) + "\n"

        return outputs


def predictor_of(name: str | None, overrides: list[str] | None) -> str | dict[str, Any] | None:
    """Return the predictor that the user gave: a name, changed settings, or None for the run's."""
    changes = overridden(overrides)
    if not changes:
        return name
    return changes if name is None else {"type": name, **changes}


def with_predictor(
    model: Model, name: str | None, overrides: list[str] | None, options: dict[str, Any]
) -> Model:
    """Return a model with the predictor that the user gave.

    Args:
        model: the model.
        name: value of `--predictor`.
        overrides: values of `--set`.
        options: settings of the options of a search, such as `{"beam": 8}`.

    Raises:
        InputError: a setting is wrong, or has no effect on the predictor.
    """
    from ..decode.predictors.registry import PREDICTORS

    settings = {**overridden(overrides), **options}
    if name is None:
        return changed(model, settings) if settings else model
    return replace(model, strategy=PREDICTORS.parse({**settings, "type": name}, "predict"))


def _rows(source: str | None) -> Iterator[InputRow]:
    """Yield the lines of a file of JSON lines that are not empty, as a reader of data does."""
    name = STDIN if source in (None, "-") else source
    for number, (line, error) in enumerate(decoded_lines(source), 1):
        if error is not None or not is_blank(line):
            location = f"{name}:{number}"
            yield InputRow(
                number, location, location, line, partial(_values, line, location, error)
            )


def _values(line: str, location: str, error: InputError | None) -> dict[str, Any]:
    """Return the JSON object of a line.

    Raises:
        InputError: the line is none.
    """
    if error is not None:
        raise error
    return json_object(line, location)


def test_rows(
    model: Model, pair: tuple[str, str] | None, test: str | None, root: str | None
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each test set by its name.

    Args:
        model: the model.
        pair: files with source and target lines, instead of a test set.
        test: name of one of the run's test sets, or `valid`; None is all test sets.
        root: folder of the data; default: that of the run.

    Raises:
        InputError: there is no such test set, or its files are wrong.
    """
    from .decoding import two_sides

    answering = model.trained
    if pair is not None:
        refuse_test_set("--source", test, root)
        columns = ("source", "target")
        if answering is not None:
            columns = answering.sides()
        lines = two_sides(*pair)
        return {pair[0]: [dict(zip(columns, row, strict=True)) for row in zip(*lines, strict=True)]}
    if answering is None:
        raise InputError("the checkpoint names no data", help="give --source and --target")
    names = _chosen(test, answering.run.data.test)
    return {name: answering.rows(name, root) for name in names}


def one_file(out: str | None, tests: Collection[str]) -> None:
    """Refuse to write the outputs of several test sets into one file.

    Raises:
        InputError: there are several test sets.
    """
    if out and len(tests) > 1:
        raise InputError(
            f"cannot write the outputs of {len(tests)} test sets into one file",
            location=out,
            help=f"choose one with --test: {', '.join(tests)}",
        )


def _chosen(test: str | None, names: Collection[str]) -> list[str]:
    """Return the names of the test sets to evaluate.

    Raises:
        InputError: no test set has that name, or the run has none.
    """
    if test is None and not names:
        raise InputError(
            "the run has no test sets", help="add them to 'data.test', or give --test valid"
        )
    if test is not None and test not in (*names, "valid"):
        help_ = did_you_mean(test, [*names, "valid"])
        raise InputError(f"no test set '{test}'", location="--test", help=help_)
    return [*names] if test is None else [test]
