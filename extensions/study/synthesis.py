"""Synthetic data: training texts one column of which a checkpoint answers.

Distillation: Kim & Rush 2016, sections 3.2 and 3.3, https://arxiv.org/abs/1606.07947; with an
ensemble: Freitag et al. 2017, https://arxiv.org/abs/1702.01802.  Back-translation: Sennrich et al.
2016, https://aclanthology.org/P16-1009
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ... import Model, Run
from ...plugin import (
    SPECIAL_TOKENS,
    Answer,
    InputError,
    On,
    Predictor,
    Reader,
    Record,
    SpecError,
    Split,
    SymbolSettings,
    Task,
    TextSettings,
    Watch,
    WorkUnit,
    load_run,
    locked,
    open_model,
    reader_of,
    results_of,
    settings_of_process,
    write_beside,
)
from ...plugin import ensemble as combined
from ...runtime.data.readers.synthetic import PROVENANCE, file_of_field
from ...runtime.data.vocabularies import file_of
from ...runtime.system.executors.executor import opened
from ...runtime.system.strangers import object_in
from ...runtime.train.device import RunDevice, choose
from ...specs.files import sha256_of
from ...specs.wording import describe
from .jobs import json_text

SCORE = "score"
"""Field with the score of each answer."""
CHUNK = 256
"""Rows that are answered between two writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthetic:
    """Training data one field of which a checkpoint answered."""

    folder: Path
    rows: int
    train: dict[str, Any]
    """The setting `data.train`, or one of its sources, that reads it below the root of the run."""
    tokenizers: dict[str, Any]
    """The setting `tokenizers` that reads those of the checkpoint, so that a run can start from its
    weights or use the same ids; empty where a run cannot read them from files."""


def synthesize(  # noqa: PLR0913 - all of them are options of the command
    run: Run | str | Path,
    checkpoint: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    rows: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    predict: Mapping[str, Any] | None = None,
    closest: bool = False,
    progress: Callable[[int, int], None] | None = None,
    watch: Watch | None = None,
    processes: int | None = None,
    on: On = "local",
) -> Synthetic:
    """Write training data for a run, one field of which a checkpoint answers.

    The checkpoint reads and answers fields of the records, by the `from` of its columns: one of the
    run's direction distills it, and one of the other direction back-translates.  The folder also
    gets the score of each answer, as the field `score`, and the tokenizers of the checkpoint.  A
    call that was stopped continues with the first row that has no answer.

    Args:
        run: the run that will read the data, a path, or a shipped name; its columns are texts.
        checkpoint: checkpoint of a model that answers in a field of the run; of several, which have
            the same tokenizer, the probabilities are averaged.
        out: folder to write, below the root of the run's data.
        rows: what is read, as a split such as `{"lines": {"target": ["mono.de"]}}`; default: the
            training data of the run.
        overrides: dotted path to value, such as `{"data.root": "corpora/multi30k"}`.
        predict: changes of the settings of the predictor, such as `{"beam": 4}`.
        closest: whether to take, of several answers, the one that is most similar to the row's
            own text by the BLEU of the sentence (Kim & Rush 2016, section 3.3); `predict` then has
            `nbest`.
        progress: called with the number of rows that are done and with that of all rows, before
            the first and after each 256.
        watch: called with the state of each part, if other processes answer them.
        processes: parts of 256 rows that are answered at the same time; default: one, in this
            process, and on a cluster as many as it takes.
        on: where: `local`, `ray`, `dask:ADDRESS`, `slurm`, or settings.

    Returns:
        The folder, and the settings that read it.

    Raises:
        InputError: the folder is not below the root or has answers of something else, a column is
            not a text, the checkpoint answers in another field, the rows lack a field, or there is
            one answer to choose from.
        SpecError: the run has errors.
    """
    settings = run if isinstance(run, Run) else load_run(run, overrides)[0]
    listed = [checkpoint] if isinstance(checkpoint, str | Path) else checkpoint
    checkpoints, folder = [*map(Path, listed)], Path(out)
    changes = dict(predict or {})
    below = _below(folder, Path(settings.data.root))
    written = _fields_of_texts(settings)
    split = settings.data.train if rows is None else _split_of(rows)
    reader = reader_of(split, settings.data.root)
    provenance = {
        "checkpoints": [str(path) for path in checkpoints],
        "weights": [_digest(path / "weights.safetensors") for path in checkpoints],
        "predict": changes,
        "closest": closest,
        "fields": [*written, SCORE],
        "reader": [split.reader, dict(reader.options)],
        "data": {name: _digest(path) for name, path in sorted(reader.contents().items())},
        "weft": version("weft"),
    }
    placement = choose(settings)
    how = (settings, placement, checkpoints, provenance["weights"], written, changes, closest)
    pickled = pickle.dumps(how)
    with locked(folder), settings_of_process(settings, placement):
        _refuse_others(folder, provenance)
        model, answered, _ = _ready(pickled)
        fields = answered.fields(written, closest=closest)
        next(_records(reader, fields), None)  # refuses missing fields before anything is written
        if not (folder / PROVENANCE).is_file():
            write_beside(folder / PROVENANCE, json_text(provenance).encode(), "file")
        tokenizers = _write_tokenizers(model, settings, folder, below)
        names = {field: file_of_field(field) for field in (*written, SCORE)}
        done = _aligned(folder, [*names.values()])
        total = 0
        if progress is not None:
            total = sum(1 for _ in _records(reader, fields))
            progress(done, total)
        remaining = islice(_records(reader, fields), done, None)
        for texts, answers in _in_order(pickled, remaining, done, folder, watch, processes, on):
            for name, file in names.items():
                values = (
                    {**row, answered.field: value, SCORE: score}[name]
                    for (value, score), row in zip(answers, texts, strict=True)
                )
                _append(folder / file, "".join(f"{' '.join(str(v).split())}\n" for v in values))
            done += len(texts)
            if progress is not None:
                progress(done, total)
        _ready.cache_clear()
        digests = {file: _digest(folder / file) for file in names.values()}
        complete = {**provenance, "rows": done, "files": digests}
        write_beside(folder / PROVENANCE, json_text(complete).encode(), "file")
    train = {"synthetic": {"folder": str(below)}}
    return Synthetic(folder=folder, rows=done, train=train, tokenizers=tokenizers)


Texts = Mapping[str, Any]
"""Fields of a row."""


def _in_order(
    settings: bytes,
    records: Iterator[Record],
    done: int,
    folder: Path,
    watch: Watch | None,
    processes: int | None,
    on: On,
) -> Iterator[tuple[list[Texts], list[tuple[Any, float]]]]:
    """Yield the rows of each part with their answers and scores, in order.

    Args:
        settings: as of `_ready`.
        records: the rows.
        done: number of rows before them.
        folder: folder of the rows.
        watch: called with the parts as units.
        processes: parts that are answered at the same time.
        on: the executor.
    """
    numbers, next_number = count(), 0
    parts: dict[int, tuple[list[Texts], list[tuple[Any, float]]]] = {}

    def next_part() -> WorkUnit[list[Texts]] | None:
        part = list(islice(records, CHUNK))
        if not part:
            return None
        number = next(numbers)
        first = done + number * CHUNK + 1
        name, location = f"rows {first:,}-{first + len(part) - 1:,}", part[0].location
        return WorkUnit(number, name, len(part), location, [record.values for record in part])

    with opened(on, processes) as engine:
        results = results_of(
            next_part,
            lambda texts: (answers_of_part, settings, texts),
            engine,
            folder,
            watch=watch,
            go_on=False,  # what follows a lost part cannot be written
        )
        for unit, answers in results:
            parts[unit.number] = unit.item, answers
            while next_number in parts:
                yield parts.pop(next_number)
                next_number += 1


def answers_of_part(settings: bytes, texts: Sequence[Texts]) -> list[tuple[Any, float]]:
    """Return the answer to each row and its score, in a worker.

    Args:
        settings: as of `_ready`.
        texts: fields of the rows.

    Raises:
        InputError: a row does not fit the model.
    """
    run, placement, *_, closest = pickle.loads(settings)
    with settings_of_process(run, placement):
        _, answered, predictor = _ready(settings)
        answers = predictor.answers([answered.row(row) for row in texts])
    if closest:
        pairs = zip(answers, texts, strict=True)
        answers = [closest_answer(answer, str(row[answered.field])) for answer, row in pairs]
    return [(answer.value, answer.score) for answer in answers]


@lru_cache(maxsize=1)
def _ready(settings: bytes) -> tuple[Model, _Answered, Predictor]:
    """Return the model, what it reads and answers, and its predictor, opened once in a process.

    Args:
        settings: the pickled run, its placement, the checkpoints with digests of their weights, the
            fields that are written, changes of the predictor, and whether the closest one of
            several answers is taken.

    Raises:
        InputError: the checkpoints cannot be opened, or do not fit.
    """
    _, placement, checkpoints, _, written, changes, closest = pickle.loads(settings)
    model = _opened(checkpoints, placement)
    answered = _Answered.of(model, written)
    predictor = model.predictor(changes or None, answers=answered.column)
    if closest:
        _refuse_one_answer(model, changes)
    return model, answered, predictor


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answered:
    """What a checkpoint reads and answers, by the fields of records."""

    column: str
    """The column that it answers in."""
    field: str
    inputs: Mapping[str, str]
    """Its other columns, by the fields that they read."""

    @classmethod
    def of(cls, model: Model, written: Sequence[str]) -> _Answered:
        """Return what a model answers.

        Raises:
            InputError: it answers in no field of the run, or not in a text.
        """
        answering = model.answering
        name = answering.run.answers
        column = answering.run.data.columns.get(name or "")
        if name is None or column is None or column.type != "text":
            raise InputError(
                "the model does not answer in a text",
                location=str(model.checkpoint.folder),
                help="give a checkpoint of a run whose 'answers' is a column of text",
            )
        field = column.from_ or name
        if field not in written:
            raise InputError(
                f"the model answers in the field '{field}', which the run does not read",
                location=str(model.checkpoint.folder),
                help=f"the run reads {', '.join(written)}; 'from' of a column names its field",
            )
        inputs = {
            other: settings.from_ or other
            for other, settings in answering.run.data.columns.items()
            if other != name and other in answering.columns
        }
        return cls(column=name, field=field, inputs=inputs)

    def fields(self, written: Sequence[str], *, closest: bool) -> list[str]:
        """Return the fields of the records that are read."""
        read = [*self.inputs.values(), *(field for field in written if field != self.field)]
        return list(dict.fromkeys([*read, *([self.field] if closest else [])]))

    def row(self, texts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the row that the model answers, by column."""
        return {column: texts[field] for column, field in self.inputs.items()}


def _records(reader: Reader, fields: Sequence[str]) -> Iterator[Record]:
    """Yield all records of a reader."""
    return chain.from_iterable(reader.records(part, fields) for part in range(reader.parts()))


def _split_of(rows: Mapping[str, Any]) -> Split:
    """Return the split in a JSON value.

    Raises:
        InputError: it is none.
    """
    try:
        return Split.model_validate(rows)
    except ValidationError as errors:
        first = errors.errors()[0]
        where = "/".join(map(str, first["loc"]))
        raise InputError(
            f"the rows are no split: {where} {describe(first)}",
            location="--rows",
            help='write a reader, such as {"lines": {"target": ["mono.de"]}}',
        ) from None


def _opened(checkpoints: Sequence[Path], placement: RunDevice) -> Model:
    """Return the model, or the ensemble of several.

    Raises:
        InputError: the models have different tokenizers.
    """
    precision = "bfloat16" if placement.half else "float32"
    first, *others = (
        open_model(folder, device=str(placement.device), precision=precision)
        for folder in checkpoints
    )
    return combined(first, others) if others else first


def _write_tokenizers(
    model: Model, run: Run, folder: Path, below: Path
) -> dict[str, dict[str, Any]]:
    """Write the tokenizers of the checkpoint, and return the settings that read them.

    `below` is the folder relative to the root of the data.  A run cannot read symbols from a file,
    and the names of its tokenizers must be those of the model: otherwise nothing is written.
    """
    task = model.answering.run
    columns = run.data.columns
    if columns.keys() - task.data.columns.keys():
        return {}
    names = _tokenizers_of(run, columns)
    if names != _tokenizers_of(task, columns) or any(
        isinstance(task.tokenizers[name], SymbolSettings) for name in names
    ):
        return {}
    settings: dict[str, dict[str, Any]] = {}
    for name in sorted(set(names)):
        file = file_of(folder, name, task.tokenizers)
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


def closest_answer(answer: Answer, text: str) -> Answer:
    """Return the one of several answers with the highest BLEU of the sentence; the first of equals.

    >>> answers = Answer("a dog ran", others=(Answer("the dog runs"),))
    >>> closest_answer(answers, "the dog is running").value
    'the dog runs'
    """
    import sacrebleu  # noqa: PLC0415 - slow to load

    def bleu(candidate: Answer) -> float:
        return float(sacrebleu.sentence_bleu(str(candidate.value), [text]).score)

    return max((answer, *answer.others), key=bleu)


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
            help=f"give a folder such as {root / 'synthetic'}",
        ) from error


def _fields_of_texts(run: Run) -> list[str]:
    """Return the fields that the columns of a run read.

    Raises:
        InputError: a column is not a text.
    """
    for name, column in run.data.columns.items():
        if column.type != "text":
            raise InputError(
                f"the column '{name}' is not a text, so it cannot be written as lines",
                location=f"{run.name}#/data/columns/{name}",
                help="give a run of texts alone",
            )
    return list(dict.fromkeys(column.from_ or name for name, column in run.data.columns.items()))


def _refuse_others(out: Path, provenance: Mapping[str, Any]) -> None:
    """Refuse a folder that has answers of another checkpoint, predictor or corpus.

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
        if before.get(name) != value and name != "checkpoints":
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


def _digest(path: Path) -> str:
    """Return the digest of a file.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return sha256_of(path)
    except OSError as error:
        raise InputError(
            f"cannot read the file: {error.strerror}",
            location=str(path),
            help="give the folder of a checkpoint, such as outputs/NAME/averaged",
        ) from error
