"""Prepared tables: data of a run, prepared once and opened again.

A prepared folder:

    prepared.json            fingerprint of settings and files, report
    NAME.model, ...          tokenizers, see `vocabularies.py`
    NAME.classes.json        classes of a column
    train/, valid/           tables, see `shards/corpus.py`

Test data is not prepared; it is read from its files for evaluation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...specs.files import sha256_of
from ...specs.findings import InputError, did_you_mean
from ..system.cores import cores
from ..system.executors.executor import On, settings_of
from .columns.column_settings import TextSettings
from .columns.registry import columns_of
from .folders import remove_leftover, resuming
from .preparation import Preparation, Report
from .readers.split import reader_of
from .records import fields_of, values_of
from .settings import FileTokenizerSettings
from .shards.arrays import AGAIN
from .shards.corpus import Corpus
from .shards.shards import SHARD
from .table import Table
from .text_files import resolve
from .vocabularies import vocabularies_of

if TYPE_CHECKING:
    from .columns.column import Column
    from .readers.reader import Record
    from .symbols import Vocabulary
    from .table_settings import DataSettings, Tokenizers

FORMAT = 2
MARKER = "prepared.json"


@dataclass(frozen=True)
class Prepared:
    """Data ready for training."""

    folder: Path
    """The prepared folder."""
    data: DataSettings
    """Columns and files."""
    columns: Mapping[str, Column]
    """Columns by name, text columns first."""
    vocabularies: Mapping[str, Vocabulary]
    """Tokenizers by name."""
    train: Table
    """Filtered training rows."""
    valid: Table
    """All validation rows without empty texts."""
    report: dict[str, Any]
    """Rows read, kept and dropped of `train` and `valid`; vocabulary sizes."""
    digest: str
    """SHA-256 digest of the training rows."""
    files: Mapping[str, bytes]
    """Files that a checkpoint needs to use the model: tokenizers and classes, by name."""

    def text(
        self, split: str, most: int | None = None, source: str | None = None
    ) -> list[dict[str, Any]]:
        """Return the raw values of all rows of a split by column, unfiltered, for metrics.

        Args:
            split: `train`, `valid`, or the name of a test set.
            most: maximum number of rows, from the first; None means all.
            source: source of the rows; None for all.

        Raises:
            InputError: there is no such split, or a file cannot be read.
        """
        records = islice(records_of(self.data, split, self.columns, source), most)
        return [values_of(self.columns, record) for record in records]


def prepare(
    data: DataSettings,
    tokenizers: Tokenizers,
    folder: str | Path,
    *,
    report: Report | None = None,
    processes: int | None = None,
    on: On = "local",
    log: Callable[[str], None] | None = None,
) -> Prepared:
    """Train the tokenizers and write the tables, or open existing prepared data.

    Existing data is reused if it was prepared with the same settings from files
    with the same names, sizes and modification times; otherwise it is replaced.
    The folder is replaced only when the preparation is complete.  A killed call
    leaves `.NAME.work` next to the folder, and the next call resumes from it.

    Args:
        data: columns, files and filter.
        tokenizers: tokenizers by name.
        folder: output folder; it may contain only prepared data.
        report: called with the progress.
        processes: shards that are tokenized at the same time; default: one for each core, and on a
            cluster as many as it takes.  The result does not depend on it.
        on: where they are tokenized: `local`, `ray`, `dask:ADDRESS`, `slurm`, or settings.
        log: called with single lines of text.

    Raises:
        InputError: a file is missing or invalid, columns do not align, the vocabulary size does
            not fit the text, no training row is left, or the folder is damaged or contains
            something else.
    """
    folder = Path(folder)
    progress, write_log = report or _ignore, log or _ignore
    if processes is not None and processes < 1:
        raise InputError(f"{processes} is not a valid number of processes", help="give 1 or more")
    local = settings_of(on).type == "local"
    columns = columns_of(data.columns, {})
    for name in data.test:  # fail now rather than after training
        for _ in records_of(data, name, columns):
            pass
    fingerprint = _fingerprint(data, tokenizers)
    if (folder / MARKER).is_file():
        existing = _read_marker(folder)
        if existing["fingerprint"] == fingerprint:
            remove_leftover(folder)
            return _open(folder, existing, data, tokenizers)
        write_log(f"{folder}: text, settings or the format have changed; preparing the data again")
    with resuming(folder, MARKER, f"{fingerprint} {SHARD}", write_log) as (work, fresh):
        # Another process may have finished it while this one waited.
        if not _is_prepared(folder, fingerprint):
            count = processes or (len(cores()) if local else None)
            reports = Preparation(data, tokenizers, work, fresh, progress, count, on).run()
            marker = {
                "format": FORMAT,
                "fingerprint": fingerprint,
                "report": reports,
                "digest": folder_digest(fresh / "train"),
            }
            (fresh / MARKER).write_text(json.dumps(marker, indent=2) + "\n")
    return _open(folder, _read_marker(folder), data, tokenizers)


def records_of(
    data: DataSettings, split: str, columns: Mapping[str, Column], source: str | None = None
) -> Iterator[Record]:
    """Yield the records of a split with the fields of some columns.

    Args:
        data: columns and files.
        split: `train`, `valid`, or the name of a test set.
        columns: the columns whose fields are needed.
        source: source of the records; None for all.

    Raises:
        InputError: there is no such split, or a file cannot be read.
    """
    splits = {"train": data.train, "valid": data.valid, **data.test}
    if split not in splits:
        raise InputError(f"there is no split '{split}'", help=did_you_mean(split, splits))
    records = splits[split] if source is None else splits[split].sources[source]
    reader, fields = reader_of(records, data.root), fields_of(columns)
    for part in range(reader.parts()):
        yield from reader.records(part, fields)


def folder_digest(folder: Path) -> str:
    """Return the SHA-256 digest of a corpus: the names and the contents of its files."""
    total = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        total.update(f"{path.name} {sha256_of(path)}\n".encode())
    return total.hexdigest()


def _ignore(*_: object) -> None:
    """Do nothing."""


def _is_prepared(folder: Path, fingerprint: str) -> bool:
    exists = (folder / MARKER).is_file()
    return exists and bool(_read_marker(folder)["fingerprint"] == fingerprint)


def _open(
    folder: Path, marker: dict[str, Any], data: DataSettings, tokenizers: Tokenizers
) -> Prepared:
    """Open a prepared folder.

    Raises:
        InputError: a part is missing or damaged, or was made with another tokenizer.
    """
    files = {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir())
        if path.is_file() and path.name != MARKER
    }
    vocabularies = vocabularies_of(files, tokenizers, str(folder))
    columns = columns_of(data.columns, vocabularies, files)
    digest = str(marker["digest"])
    train = Table(Corpus.open(folder / "train"), columns, digest)
    valid = Table(Corpus.open(folder / "valid"), columns)
    used = {
        name: vocabularies[column.tokenizer].digest
        for name, column in data.columns.items()
        if isinstance(column, TextSettings)
    }
    for table in (train, valid):
        if table.corpus.header["tokenizers"] != used:
            msg = "corpus was made with another tokenizer"
            raise InputError(msg, location=str(table.folder), help=AGAIN)
    return Prepared(
        folder=folder,
        data=data,
        columns=columns,
        vocabularies=vocabularies,
        train=train,
        valid=valid,
        report=marker["report"],
        digest=digest,
        files=files,
    )


def _read_marker(folder: Path) -> dict[str, Any]:
    """Read `prepared.json`; data of older versions has another fingerprint.

    Raises:
        InputError: it is damaged.
    """
    path = folder / MARKER
    try:
        marker: dict[str, Any] = json.loads(path.read_text())
        if not {"fingerprint", "report"} <= marker.keys():
            raise KeyError(MARKER)  # noqa: TRY301 - the handler below reports all damage
    except (OSError, ValueError, KeyError, AttributeError) as error:
        msg = f"{MARKER} is damaged"
        raise InputError(msg, location=str(path), help=AGAIN) from error
    return marker


def _fingerprint(data: DataSettings, tokenizers: Tokenizers) -> str:
    """Return a hash of everything that determines the prepared data.

    Files enter by name, size and modification time, because reading 36 million
    rows to detect changes would take minutes.

    Raises:
        InputError: a path leaves the root.
    """
    files, readers = dict[str, Path](), dict[str, Any]()
    stats: dict[str, tuple[int, int]] = {}
    for name, split in (("train", data.train), ("valid", data.valid)):
        reader = reader_of(split, data.root)
        readers[name] = [split.reader, reader.options]
        files |= reader.contents()
    for tokenizer in tokenizers.values():
        if isinstance(tokenizer, FileTokenizerSettings):
            files[tokenizer.path] = resolve(data.root, tokenizer.path)
    for file, path in files.items():
        if path.is_file():  # its reader reports a missing file and suggests similar names
            stat = path.stat()
            stats[file] = (stat.st_size, stat.st_mtime_ns)
    contents: dict[str, Any] = {
        "format": FORMAT,
        "columns": {name: column.prepared() for name, column in data.columns.items()},
        "tokenizers": {
            name: tokenizer.model_dump(mode="json") for name, tokenizer in tokenizers.items()
        },
        "readers": readers,
        "filter": data.filter.model_dump(mode="json"),
        "files": stats,
    }
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()
