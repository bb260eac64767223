"""New runs that fit files: `weft new translation --train a.en a.fr` and `weft.new_run`.

A run is a template of `runs/`, filled with the files and with sizes that fit them (`sizes.py`).
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from ...specs.escaping import printable
from ...specs.files import write_beside
from ...specs.findings import InputError, SpecError, did_you_mean
from ...specs.layout import laid_out
from ...specs.reader import read_json
from ..data.readers.delimited import other_delimiter
from ..data.streams import ENDINGS
from ..train.plan import plan_value
from .held_out import aligned_rows, hold_out, table_rows
from .survey import Survey, survey

TEMPLATES = Path(__file__).parent / "runs"
LARGEST = 1 << 31
"""Bytes of files of which rows are held out, at most."""
FEW_WORDS = 100
"""Distinct words up to which what is spoken is written in whole words."""
TABLES = {".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".parquet": "parquet"}
"""Reader of a table by the ending of its name."""


@dataclass(frozen=True, slots=True)
class ScaffoldTask:
    """What a model is trained for, and how its files are read."""

    about: str
    """What the model will do, with the fields in braces."""
    columns: tuple[str, ...]
    """Columns in the order of files of lines; those of a table are fields."""
    texts: tuple[str, ...]
    """Columns that share the vocabulary."""
    epochs: int
    """How often to train on each row."""
    reader: str = "table"
    """Name of the reader; `table` chooses it by the ending of a name."""
    settings: Mapping[str, Any] | None = None
    """Settings of the reader."""


TASKS = {
    "translation": ScaffoldTask(
        "Translate lines of one language into another",
        ("source", "target"),
        ("source", "target"),
        30,
        "lines",
    ),
    "language-model": ScaffoldTask("Continue texts", ("text",), ("text",), 20, "lines"),
    "classification": ScaffoldTask("Tell the class of a text", ("text", "label"), ("text",), 12),
    "tagging": ScaffoldTask("Tell a tag for each word of a text", ("text", "tags"), ("text",), 15),
    "parsing": ScaffoldTask(
        "Parse sentences into trees", ("source",), ("source",), 30, "trees", {"decoder": "chart"}
    ),
    "speech": ScaffoldTask("Write down what is spoken", ("audio", "text"), ("text",), 60, "audio"),
}
"""Tasks by name; each has a template of this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """A run that was written."""

    path: Path
    """The run."""
    name: str
    """Its name; it trains in `outputs/NAME`."""
    rows: int
    """Rows of the training files, about if they are large."""
    held_out: Path | None
    """Folder of files with the rows that train, and those held out, if some were."""


def new_run(
    task: str,
    train: Sequence[str | Path],
    *,
    valid: Sequence[str | Path] = (),
    test: Sequence[str | Path] = (),
    fields: Mapping[str, str] | None = None,
    name: str = "",
    out: str | Path | None = None,
) -> NewRun:
    """Write a run for files, with sizes that fit them, and comments.

    At most a few megabytes of each file are read, unless rows are held out for validation.

    Args:
        task: `translation`, `language-model`, `classification`, `tagging`, `parsing` or `speech`.
        train: training files; of `translation`, source and target in turn.
        valid: validation files; without any, rows are held out, for tests too.
        test: test files.
        fields: fields of the files by column, such as `{"text": "review"}`, of tables.
        name: name of the run; default: that of the task.
        out: the run file to write; default: `NAME.json`.

    Raises:
        InputError: there is no such task, a file cannot be read, has no such field or too few rows,
            or what would be written exists.
        SpecError: the run would have mistakes, such as a name that is none.
    """
    if task not in TASKS:
        raise InputError(f"no task '{task}'", location="task", help=did_you_mean(task, TASKS))
    chosen, name = TASKS[task], name or task
    path = Path(out or f"{name}.json")
    files = {"train": train, "valid": valid, "test": test}
    paths = {part: [Path(file) for file in some] for part, some in files.items()}
    for part, some in paths.items():
        _refuse_wrong(some, chosen, part)
    refuse_old(path)
    reader = _reader(paths["train"], chosen)
    read = [*chosen.columns] if reader in ("lines", "trees") else None
    # The sounds of a manifest are not looked at: it is a table.
    looked = {"audio": "csv"}.get(reader, reader)
    delimiter = _delimiter(paths["train"], looked)
    looks = survey(lambda some: _split(looked, some, chosen, delimiter), paths["train"], read)
    by_column = {} if reader == "lines" else _fields(chosen, looks, fields or {}, reader)
    if fields and not by_column:
        raise InputError("the files have no fields", location="fields", help="leave them out")
    looks.fields = {c: looks.fields[by_column.get(c, c)] for c in chosen.texts}
    root = _root(paths, reader)
    divided = None if valid else root / f"{name}-data"
    if divided is not None:
        refuse_old(divided)
        key = by_column.get(chosen.texts[0], "")
        columns = len(chosen.columns) if reader == "lines" else 1
        paths |= _held_out(paths, reader, key, looks.all_rows, divided, columns)
    values = {
        "name": name,
        "doc": f"{chosen.about}: {', '.join(Path(file).name for file in train)}.",
        "root": os.path.relpath(root),
        **{f"field_{column}": by_column.get(column, column) for column in chosen.columns},
        **sizes(looks, chosen.texts, chosen.epochs, spoken=reader == "audio"),
        "pieces": _tokenizer(looks, chosen),
    }
    parts = {part: _part(reader, some, root, chosen, by_column) for part, some in paths.items()}
    parts["test"] = {"test": parts["test"]} if paths["test"] else {}
    try:
        _write(path, filled(task, values | parts))
    except BaseException:
        if divided is not None:
            shutil.rmtree(divided, ignore_errors=True)
        raise
    return NewRun(path=path, name=name, rows=looks.all_rows, held_out=divided)


def _write(path: Path, text: str) -> None:
    """Write the text of a run, if it has no mistakes.

    Raises:
        SpecError: it has.
    """
    if errors := plan_value(read_json(text, str(path)), str(path)).errors:
        raise SpecError(errors)
    write_beside(path, text.encode(), "run")


def filled(task: str, values: Mapping[str, Any]) -> str:
    """Return the text of a run: the template of a task with values, as JSON, and comments."""
    parts = ("beginning", task, "training")
    text = "".join((TEMPLATES / f"{part}.txt").read_text(encoding="utf-8") for part in parts)
    written = {key: json.dumps(value, ensure_ascii=False) for key, value in values.items()}
    return laid_out(printable(Template(text).substitute(written)))


def _tokenizer(looks: Survey, task: ScaffoldTask) -> dict[str, Any]:
    """Return a vocabulary of words, if there are few, and otherwise of pieces."""
    if len(looks.fields[task.texts[0]].words) <= FEW_WORDS:
        return {"type": "symbols"}
    return {"type": "bpe", "vocab_size": vocabulary(looks, task.texts)}


def refuse_old(path: Path) -> None:
    """Check that nothing is overwritten.

    Raises:
        InputError: the path exists.
    """
    if path.exists() or path.is_symlink():
        raise InputError(
            "it exists, and is not overwritten",
            location=str(path),
            help="choose another name with --name or another file with --out",
        )


def _refuse_wrong(paths: Sequence[Path], task: ScaffoldTask, part: str) -> None:
    """Check that there are files, as many of each column.

    Raises:
        InputError: there are not.
    """
    columns = task.columns if task.reader == "lines" else task.columns[:1]
    if (part == "train" and not paths) or len(paths) % len(columns):
        names = " ".join(f"FILE.{column}" for column in columns)
        raise InputError(
            f"{len(paths)} files, but a row needs {' and '.join(columns)}",
            location=f"--{part}",
            help=f"name them in this order: --{part} {names}",
        )
    for path in paths:
        if not path.is_file():
            near = did_you_mean(path.name, [p.name for p in _beside(path)])
            raise InputError("no such file", location=str(path), help=near or "name a file")


def _beside(path: Path) -> list[Path]:
    return list(path.parent.iterdir()) if path.parent.is_dir() else []


def _reader(paths: Sequence[Path], task: ScaffoldTask) -> str:
    """Return the name of the reader of some files.

    Raises:
        InputError: the ending of a name tells none.
    """
    if task.reader != "table":
        return task.reader
    name = paths[0].name
    for ending in ENDINGS:
        name = name.removesuffix(ending)
    reader = TABLES.get(Path(name).suffix)
    if reader is None:
        raise InputError(
            f"the ending of '{name}' does not tell what kind of table it is",
            location="--train",
            help=f"rename it so that it ends with one of {', '.join(TABLES)}",
        )
    return reader


def _split(
    reader: str, files: Sequence[str], task: ScaffoldTask, settings: Mapping[str, str]
) -> dict[str, Any]:
    """Return the reader of files by its name, as in a run."""
    if reader == "lines":
        step = len(task.columns)
        return {reader: {column: [*files[at::step]] for at, column in enumerate(task.columns)}}
    return {reader: {"files": [*files], **(task.settings or {}), **settings}}


def _delimiter(paths: Sequence[Path], reader: str) -> dict[str, str]:
    """Return the setting of the delimiter of tables in text, if it is not that of their names.

    Raises:
        InputError: a file cannot be read.
    """
    if reader not in ("csv", "audio") or not paths:
        return {}
    delimiter = other_delimiter(paths[0])
    return {} if delimiter is None else {"delimiter": delimiter}


def _part(
    reader: str, paths: Sequence[Path], root: Path, task: ScaffoldTask, by_column: Mapping[str, str]
) -> dict[str, Any]:
    """Return the reader of a part of the data, whose files are below the root."""
    names = [path.resolve().relative_to(root).as_posix() for path in paths]
    settings = _delimiter(paths, reader)
    if (sounds := by_column.get("audio", "audio")) != "audio":
        settings["path"] = sounds
    return _split(reader, names, task, settings)


def _fields(
    task: ScaffoldTask, looks: Survey, fields: Mapping[str, str], reader: str
) -> Mapping[str, str]:
    """Return the field of each column of a table.

    Raises:
        InputError: there is no such column or field, or it is unclear which field is meant.
    """
    if reader == "trees":
        if fields:
            raise InputError("trees have no fields", location="--field", help="leave it out")
        return {column: column for column in task.columns}
    for column, field in fields.items():
        if column not in task.columns:
            help_ = did_you_mean(column, task.columns) or f"columns: {', '.join(task.columns)}"
            raise InputError(f"no column '{column}'", location="--field", help=help_)
        if field not in looks.fields:
            help_ = did_you_mean(field, looks.fields) or _listed(looks)
            raise InputError(f"no field '{field}'", location="--field", help=help_)
    chosen = {column: column for column in task.columns if column in looks.fields} | {**fields}
    others = [field for field in looks.fields if field not in chosen.values()]
    missing = [column for column in task.columns if column not in chosen]
    if len(looks.fields) < len(task.columns):
        raise InputError(
            f"a row has {len(looks.fields)} field, but needs {' and '.join(task.columns)}",
            location="--train",
            help=f"name other files; {_listed(looks)}",
        )
    if missing and len(others) == len(missing) and task.reader == "table":
        # A text has more different words than classes or tags.
        others.sort(key=lambda field: len(looks.fields[field].words), reverse=True)
        chosen |= dict(zip(missing, others, strict=True))
    elif missing:
        raise InputError(
            f"no field '{missing[0]}'",
            location="--field",
            help=f"name it: --field {missing[0]}=NAME; {_listed(looks)}",
        )
    _refuse_no_names(chosen, looks)
    return chosen


def _refuse_no_names(chosen: Mapping[str, str], looks: Survey) -> None:
    """Check that the first row of a table has the names of the fields, not the first record.

    Raises:
        InputError: the name of a field is also one of its values.
    """
    for column, field in chosen.items():
        if field in looks.fields[field].texts:
            raise InputError(
                f"the first row has no names: {field!r} is also a value of '{column}'",
                location="--train",
                help=f"begin the file with a row of names, such as {','.join(chosen)}",
            )


def _listed(looks: Survey) -> str:
    return f"the fields: {', '.join(map(repr, looks.fields))}"


def _root(paths: Mapping[str, Sequence[Path]], reader: str) -> Path:
    """Return the folder that contains all files; of sounds, that of the manifests.

    Raises:
        InputError: manifests lie in several folders.
    """
    folders = {path.resolve().parent for some in paths.values() for path in some}
    if reader == "audio" and len(folders) > 1:
        raise InputError(
            "the manifests are in different folders",
            location="--train",
            help="put them into the folder to which the paths of the sounds are relative",
        )
    return Path(os.path.commonpath(folders))


def _held_out(
    paths: Mapping[str, list[Path]],
    reader: str,
    key: str,
    count: int,
    folder: Path,
    columns: int,
) -> dict[str, list[Path]]:
    """Write the training rows, and others for validation and, without tests, for tests.

    Args:
        paths: the files by part.
        reader: the name of their reader.
        key: field of a table by whose text rows are divided.
        count: number of rows, about.
        folder: the folder to write.
        columns: number of files with the columns of a row.

    Raises:
        InputError: the rows of such files cannot be held out.
    """
    train = paths["train"]
    large = sum(path.stat().st_size for path in train) > LARGEST
    if reader in ("trees", "parquet") or large or len(train) != columns:
        what = "the files are large" if large else f"{len(train)} of the reader '{reader}'"
        raise InputError(
            f"no rows of {what} can be held out",
            location="--valid",
            help="name validation files with --valid",
        )
    names = ("valid",) if paths["test"] else ("valid", "test")
    if reader in ("jsonl", "lines"):
        return hold_out(aligned_rows(train), train, count, folder, names)
    rows = table_rows(train[0], other_delimiter(train[0]), key)
    return hold_out(rows, train, count, folder, names, names=True)


TOKEN = 4.5
"""Characters of a token of a sub-word vocabulary, about."""
UPDATES = 300, 20_000
"""Least and most updates."""
IN_UPDATE = 600, 4_000
"""Least and most tokens of an update."""
UPDATES_IN_EPOCH = 20
"""Updates of an epoch of small data."""
ACCUMULATE = 4
"""Batches of an update: each has sentences of similar lengths, and an update mixes them."""
BATCH = 256
"""Least tokens of a batch, so that a long sentence fits."""
SAMPLES, SECOND, SPOKEN = 800_000, 16_000, 4
"""Samples of a batch of sounds and of a second, and the seconds of a text, about."""
VOCABULARY = 16_000
"""Largest vocabulary."""
AVERAGE = 5
"""Checkpoints that are averaged."""


class Width(NamedTuple):
    """Sizes of a model for data of up to some tokens."""

    tokens: float
    d_model: int
    heads: int
    d_ff: int
    layers: int
    dropout: float
    peak: float


WIDTHS = (
    Width(30e3, 128, 4, 256, 2, 0.3, 0.003),
    Width(2e6, 128, 4, 256, 4, 0.3, 0.003),
    Width(20e6, 256, 8, 1024, 4, 0.2, 0.001),
    Width(float("inf"), 512, 8, 2048, 6, 0.1, 0.0007),
)


def sizes(
    survey: Survey, texts: Sequence[str], epochs: int, *, spoken: bool = False
) -> dict[str, float]:
    """Return the numbers of a run by the names that its template has for them.

    Args:
        survey: a look at the training data.
        texts: its fields with texts.
        epochs: how often to train on each row, if that needs neither too few nor too many updates.
        spoken: whether batches consist of sounds.
    """
    tokens = max(survey.characters(name) for name in texts) / TOKEN
    width = next(width for width in WIDTHS if tokens <= width.tokens)
    in_update = _between(tokens / UPDATES_IN_EPOCH, IN_UPDATE)
    batch = max(_round(in_update / ACCUMULATE), BATCH)
    accumulate = max(2, round(in_update / batch))
    in_epoch = tokens / in_update
    if spoken:
        batch, accumulate = SAMPLES, 1
        in_epoch = survey.all_rows * SPOKEN * SECOND / SAMPLES
    updates = _round(_between(epochs * in_epoch, UPDATES))
    every = max(1, updates // 20)
    return {
        "rows": survey.all_rows,
        **{name: value for name, value in width._asdict().items() if name != "tokens"},
        "vocab": vocabulary(survey, texts),
        "batch": batch,
        "accumulate": accumulate,
        "updates": updates,
        "evaluate": 2 * every,
        "checkpoint": every,
        "average": AVERAGE,
    }


def vocabulary(survey: Survey, texts: Sequence[str]) -> int:
    """Return the number of pieces of a vocabulary of some fields.

    It grows with the root of the number of tokens, and has room for all characters; a small text
    has no more pieces than it has characters and words.
    """
    letters = len(set().union(*(survey.fields[name].letters for name in texts)))
    words = len(set().union(*(survey.fields[name].words for name in texts)))
    tokens = sum(survey.characters(name) for name in texts) / TOKEN
    least, most = letters + 8, letters + 4 + 3 * words // 4
    return max(least, min(VOCABULARY, _round(6 * math.sqrt(tokens)), most))


def _between(number: float, bounds: tuple[int, int]) -> float:
    return min(max(number, bounds[0]), bounds[1])


def _round(number: float) -> int:
    """Return a number with two digits that are not 0, rounded down."""
    unit = int(10 ** max(0, len(str(int(number))) - 2))
    return int(number) // unit * unit
