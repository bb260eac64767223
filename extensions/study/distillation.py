"""Sequence-level distillation: translate the training data of a run with trained models.

Sources: Kim & Rush 2016, sections 3.2 and 3.3, https://arxiv.org/abs/1606.07947; an ensemble as the
teacher: Freitag et al. 2017, https://arxiv.org/abs/1702.01802
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from ... import Model, Run
from ...plugin import (
    SPECIAL_TOKENS,
    Answer,
    InputError,
    SpecError,
    SymbolSettings,
    Task,
    TextSettings,
    load_run,
    locked,
    open_model,
    reader_of,
    records_of,
    settings_of_process,
    values_of,
    write_beside,
)
from ...plugin import ensemble as combined
from ...runtime.data.vocabularies import file_of
from ...runtime.system.strangers import object_in
from ...runtime.train.device import Place, choose
from .jobs import json_text

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
    tokenizers: dict[str, Any]
    """The setting `tokenizers` that reads the teacher's, so that a student can start from its
    weights or use the same ids; empty where a run cannot read them from files."""


def distill(
    run: Run | str | Path,
    teacher: str | Path,
    out: str | Path,
    *,
    ensemble: Sequence[str | Path] = (),
    overrides: Mapping[str, Any] | None = None,
    predict: Mapping[str, Any] | None = None,
    closest: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Distilled:
    """Answer the training rows of a run with a teacher, and write them as lines.

    The folder also gets the teacher's tokenizers.  A call that was stopped continues with the first
    row that has no answer.

    Args:
        run: the run whose training data is answered, a path, or a shipped name; its columns are
            texts.
        teacher: checkpoint of a model with the same columns.
        out: folder to write, below the root of the run's data.
        ensemble: further checkpoints with the same tokenizer; the probabilities are averaged.
        overrides: dotted path to value, such as `{"data.root": "corpora/multi30k"}`.
        predict: changes of the settings of the predictor, such as `{"beam": 4}`.
        closest: whether to take, of several answers, the one that is most similar to the row's
            own text by the BLEU of the sentence (Kim & Rush 2016, section 3.3); `predict` then has
            `nbest`.
        progress: called with the number of rows that are done and with that of all rows, before
            the first and after each 256.

    Returns:
        The folder, and the settings that read it.

    Raises:
        InputError: the folder is not below the root or has answers of something else, a column is
            not a text, the teacher has other columns, or there is one answer to choose from.
        SpecError: the run has errors.
    """
    settings = run if isinstance(run, Run) else load_run(run, overrides)[0]
    teachers, folder = [Path(teacher), *map(Path, ensemble)], Path(out)
    changes = dict(predict or {})
    below = _below(folder, Path(settings.data.root))
    column = _columns_are_texts(settings)
    reader = reader_of(settings.data.train, settings.data.root)
    provenance = {
        "teachers": [str(teacher) for teacher in teachers],
        "weights": [_sha256(teacher / "weights.safetensors") for teacher in teachers],
        "predict": changes,
        "closest": closest,
        "column": column,
        "reader": [settings.data.train.reader, dict(reader.options)],
        "data": {name: _sha256(path) for name, path in sorted(reader.contents().items())},
        "weft": version("weft"),
    }
    names = {name: f"train.{name}.txt" for name in settings.data.columns}
    placement = choose(settings)
    with locked(folder), settings_of_process(settings, placement):
        _refuse_others(folder, provenance)
        model = _opened(teachers, settings, placement)
        columns = model.answering.columns
        predictor = model.predictor(changes or None, answers=column)
        if closest:
            _refuse_one_answer(model, changes)
        if not (folder / PROVENANCE).is_file():
            write_beside(folder / PROVENANCE, json_text(provenance).encode(), "file")
        tokenizers = _write_tokenizers(model, settings, folder, below)
        done = _aligned(folder, [*names.values()])
        total = 0
        if progress is not None:
            total = sum(1 for _ in records_of(settings.data, "train", columns))
            progress(done, total)
        rows = islice(records_of(settings.data, "train", columns), done, None)
        while records := list(islice(rows, CHUNK)):
            values = [values_of(columns, record) for record in records]
            answers = predictor.answers(values)
            chosen = [
                closest_answer(answer, str(row[column])) if closest else answer.value
                for answer, row in zip(answers, values, strict=True)
            ]
            distilled = [{**row, column: text} for row, text in zip(values, chosen, strict=True)]
            for name, file in names.items():
                lines = "".join(f"{' '.join(str(row[name]).split())}\n" for row in distilled)
                _append(folder / file, lines)
            done += len(records)
            if progress is not None:
                progress(done, total)
        write_beside(folder / PROVENANCE, json_text({**provenance, "rows": done}).encode(), "file")
    train = {"lines": {name: [str(below / file)] for name, file in names.items()}}
    return Distilled(folder=folder, rows=done, train=train, tokenizers=tokenizers)


def _opened(teachers: Sequence[Path], run: Run, placement: Place) -> Model:
    """Return the teacher, or the ensemble of several.

    Raises:
        InputError: it has other columns than the run, or the teachers have different tokenizers.
    """
    precision = "bfloat16" if placement.half else "float32"
    first, *others = (
        open_model(folder, device=str(placement.device), precision=precision) for folder in teachers
    )
    if missing := run.data.columns.keys() - first.answering.columns.keys():
        raise InputError(
            f"the teacher has no column '{min(missing)}'",
            location=str(teachers[0]),
            help="give a checkpoint of a run with the same columns",
        )
    return combined(first, others) if others else first


def _write_tokenizers(
    model: Model, run: Run, folder: Path, below: Path
) -> dict[str, dict[str, Any]]:
    """Write the tokenizers of the teacher, and return the settings that read them.

    `below` is the folder relative to the root of the data.  A run cannot read symbols from a file,
    and the names of its tokenizers must be the teacher's: otherwise nothing is written.
    """
    teacher = model.answering.run
    columns = run.data.columns
    names = _tokenizers_of(run, columns)
    if names != _tokenizers_of(teacher, columns) or any(
        isinstance(teacher.tokenizers[name], SymbolSettings) for name in names
    ):
        return {}
    settings: dict[str, dict[str, Any]] = {}
    for name in sorted(set(names)):
        file = file_of(folder, name, teacher.tokenizers)
        write_beside(file.path, model.checkpoint.tokenizers[file.path.name], "file")
        settings[name] = {"type": "file", "path": str(below / file.path.name)}
        if file.special != SPECIAL_TOKENS:
            settings[name]["special"] = list(file.special)
    return settings


def _tokenizers_of(run: Task, columns: Collection[str]) -> list[str]:
    """Return the name of the tokenizer of each of some columns, which are texts."""
    settings = (run.data.columns[name] for name in columns)
    return [column.tokenizer for column in settings if isinstance(column, TextSettings)]


def _refuse_one_answer(model: Model, changes: Mapping[str, Any]) -> None:
    """Refuse to choose among the answers of a predictor that gives one.

    Raises:
        InputError: it does.
    """
    settings = model.predictor_settings(changes or None)
    several = max(getattr(settings, "nbest", 1), getattr(settings, "samples", 1))
    if several == 1:
        raise InputError(
            "there is one answer for each row, so there is no closest one",
            location="--closest",
            help="add --predict nbest=5, or another number up to that of the beam",
        )


def closest_answer(answer: Answer, text: str) -> str:
    """Return the one of several answers with the highest BLEU of the sentence; the first of equals.

    >>> closest_answer(Answer("a dog ran", others=(Answer("the dog runs"),)), "the dog is running")
    'the dog runs'
    """
    import sacrebleu  # noqa: PLC0415 - slow to load

    candidates = [str(candidate.value) for candidate in (answer, *answer.others)]
    return max(
        candidates, key=lambda candidate: float(sacrebleu.sentence_bleu(candidate, [text]).score)
    )


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
            location=str(out),
            help=f"give a folder such as {root / 'distilled'}",
        ) from error


def _columns_are_texts(run: Run) -> str:
    """Return the column that is answered.

    Raises:
        InputError: the run does not name it, or a column is not a text.
    """
    for name, column in run.data.columns.items():
        if column.type != "text":
            raise InputError(
                f"the column '{name}' is not a text, so it cannot be written as lines",
                location=f"{run.name}#/data/columns/{name}",
                help="distill a run of texts alone",
            )
    if run.answers is None:
        raise InputError(
            "the run does not name the column that is predicted",
            location=f"{run.name}#/answers",
            help="add 'answers' to the run",
        )
    return run.answers


def _refuse_others(out: Path, provenance: Mapping[str, Any]) -> None:
    """Refuse a folder that has answers of another teacher, predictor or corpus.

    Raises:
        InputError: it has.
    """
    path = out / PROVENANCE
    if not path.is_file():
        if files := [file.name for file in out.iterdir() if not file.name.startswith(".")]:
            raise InputError(
                f"the folder contains other files, such as '{min(files)}'",
                location=str(out),
                help="give a new folder with --out",
            )
        return
    try:
        before = object_in(out, PROVENANCE)
    except SpecError as error:
        raise InputError(
            "the file is damaged", location=str(path), help="remove the folder"
        ) from error
    for name, value in provenance.items():
        if before.get(name) != value and name != "teachers":
            raise InputError(
                f"the folder has answers with another '{name}'",
                location=str(path),
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
            location=str(path),
            help="give the folder of a checkpoint, such as outputs/NAME/averaged",
        ) from error
