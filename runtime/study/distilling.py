"""Sequence-level distillation: translate the training data of a run with a trained model.

Source: Kim & Rush 2016, section 3.2, https://arxiv.org/abs/1606.07947
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from ...specs.files import write_beside
from ...specs.findings import InputError
from ..data.preparing.prepare import records_of
from ..data.preparing.records import values_of
from ..data.readers.registry import reader_of
from ..model.opening import open_model
from ..system.lock import locked
from ..train.device import choose
from ..train.run import Run

PROVENANCE = "provenance.json"
"""File that tells from what the answers were made."""
CHUNK = 256
"""Rows that are answered between two writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distilled:
    """Training data whose answers are those of a teacher."""

    folder: Path
    rows: int
    train: dict[str, Any]
    """The setting `data.train` that reads it, below the root of the run."""


def distill(
    run: Run,
    teacher: Path,
    out: Path,
    *,
    predict: Mapping[str, Any] | None = None,
    log: Callable[[str], None] = lambda _: None,
) -> Distilled:
    """Answer the training rows of a run with a teacher, and write them as lines.

    A call that was stopped continues with the first row that has no answer.

    Args:
        run: the run whose training data is answered; its columns are texts.
        teacher: checkpoint of a model with the same columns.
        out: folder to write, below the root of the run's data.
        predict: changes of the settings of the predictor, such as `{"beam": 4}`.
        log: called with the number of rows that are done.

    Returns:
        The folder, and the setting that reads it.

    Raises:
        InputError: the folder is not below the root or has answers of something else, a column is
            no text, or the teacher has other columns.
    """
    below = _below(out, Path(run.data.root))
    column = _columns_are_texts(run)
    place = choose(run)
    known = {
        "teacher": str(teacher),
        "weights": _sha256(teacher / "weights.safetensors"),
        "predict": {**dict(predict or {})},
        "column": column,
        "data": {
            name: _sha256(path)
            for name, path in sorted(reader_of(run.data.train, run.data.root).files().items())
        },
        "weft": version("weft"),
    }
    names = {name: f"train.{name}.txt" for name in run.data.columns}
    with locked(out):
        _refuse_others(out, known)
        if not (out / PROVENANCE).is_file():
            write_beside(out / PROVENANCE, _json(known), "file")
        done = _aligned(out, [*names.values()])
        model = open_model(
            teacher, device=str(place.device), precision="bfloat16" if place.half else "float32"
        )
        reading = model.answering
        if missing := run.data.columns.keys() - reading.columns.keys():
            raise InputError(
                f"the teacher has no column '{min(missing)}'",
                place=str(teacher),
                help="give a checkpoint of a run with the same columns",
            )
        predictor = reading.predictor(
            (model.module,), {**dict(predict or {})} or None, column, half=place.half
        )
        rows = islice(records_of(run.data, "train", reading.columns), done, None)
        while records := list(islice(rows, CHUNK)):
            values = [values_of(reading.columns, record) for record in records]
            answers = predictor.predict(values)
            made = [{**row, column: answer} for row, answer in zip(values, answers, strict=True)]
            for name, file in names.items():
                lines = "".join(f"{' '.join(str(row[name]).split())}\n" for row in made)
                _append(out / file, lines)
            done += len(records)
            log(f"{done:,} rows")
        write_beside(out / PROVENANCE, _json({**known, "rows": done}), "file")
    train = {"lines": {name: [str(below / file)] for name, file in names.items()}}
    return Distilled(folder=out, rows=done, train=train)


def _below(out: Path, root: Path) -> Path:
    """Return a folder relative to the root of the data.

    Raises:
        InputError: it is outside of the root.
    """
    try:
        return out.resolve().relative_to(root.resolve())
    except ValueError as error:
        raise InputError(
            f"the folder is not below the root of the data, '{root}'",
            place=str(out),
            help=f"give a folder such as {root / 'distilled'}",
        ) from error


def _columns_are_texts(run: Run) -> str:
    """Return the column that is answered.

    Raises:
        InputError: the run does not name it, or a column is no text.
    """
    for name, one in run.data.columns.items():
        if one.type != "text":
            raise InputError(
                f"the column '{name}' is not a text, so it cannot be written as lines",
                place=f"{run.name}#/data/columns/{name}",
                help="distill a run of texts alone",
            )
    if run.answers is None:
        raise InputError(
            "the run does not name the column that is predicted",
            place=f"{run.name}#/answers",
            help="add 'answers' to the run",
        )
    return run.answers


def _refuse_others(out: Path, known: Mapping[str, Any]) -> None:
    """Refuse a folder that has answers of another teacher, predictor or corpus.

    Raises:
        InputError: it has.
    """
    path = out / PROVENANCE
    if not path.is_file():
        if files := [one.name for one in out.iterdir() if not one.name.startswith(".")]:
            raise InputError(
                f"the folder contains other files, such as '{min(files)}'",
                place=str(out),
                help="give a new folder with --out",
            )
        return
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(
            "the file is damaged", place=str(path), help="remove the folder"
        ) from error
    for name, value in known.items():
        if before.get(name) != value and name != "teacher":
            raise InputError(
                f"the folder has answers with another '{name}'",
                place=str(path),
                help="give a new folder with --out, or remove this one",
            )


def _aligned(out: Path, files: list[str]) -> int:
    """Cut the files to the rows that all of them have, and return how many these are."""
    counts = []
    for file in files:
        path = out / file
        path.touch()
        with path.open("rb") as lines:
            counts.append(sum(line.endswith(b"\n") for line in lines))
    least = min(counts)
    for file in files:
        path = out / file
        with path.open("rb") as lines:
            size = sum(len(line) for line in islice(lines, least))
        os.truncate(path, size)
    return least


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8", newline="\n") as file:
        file.write(text)


def _sha256(path: Path) -> str:
    """Return the digest of a file.

    Raises:
        InputError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(
            f"cannot read the file: {error.strerror}",
            place=str(path),
            help="give the folder of a checkpoint, such as outputs/NAME/averaged",
        ) from error


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()
