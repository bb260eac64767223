"""Prepared tables: data of a run, prepared once and opened again.

A prepared folder:

    prepared.json            fingerprint of settings and files, report; of data from elsewhere,
                             its manifest
    NAME.model, ...          tokenizers, see `vocabularies.py`
    NAME.classes.json        classes of a column
    train/, valid/           tables, see `shards/corpus.py`
    files/                   of data from elsewhere, the files of `valid` and of the test sets

Test data is not prepared; it is read from its files for evaluation.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...specs.files import sha256_of
from ...specs.findings import InputError, did_you_mean
from ...specs.wording import SettingError
from ..system.executors.executor import On, settings_of
from ..system.executors.units import Watch
from ..system.processes import cores
from .columns.column_settings import TextSettings
from .columns.registry import columns_of
from .folders import remove_leftover, resuming
from .preparation import Preparation, Report
from .readers.split import reader_of
from .records import fields_of, values_of
from .settings import FileTokenizerSettings, checked_store, split_address
from .shards.arrays import AGAIN, damaged
from .shards.corpus import Corpus
from .shards.shards import SHARD
from .store.cache import fetched
from .store.manifest import MANIFEST, PreparedManifest, manifest_name
from .store.stores import Store, store_at
from .store.upload import refuse_unwritable, upload
from .table import Table
from .text_files import resolve
from .vocabularies import vocabularies_of

if TYPE_CHECKING:
    from .columns.column import Column
    from .readers.reader import Record
    from .symbols import Vocabulary
    from .table_settings import DataSettings, Tokenizers

FORMAT = 2
MARKER = MANIFEST
FILES = "files"
"""Folder of prepared data from elsewhere with the files of `valid` and of the test sets."""


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
    address: str | None = None
    """Where it was uploaded to; the setting `data.prepared` of a run anywhere."""

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


def prepare(  # noqa: PLR0913 - all of them are options of the command
    data: DataSettings,
    tokenizers: Tokenizers,
    folder: str | Path,
    *,
    report: Report | None = None,
    processes: int | None = None,
    on: On = "local",
    log: Callable[[str], None] | None = None,
    to: str | None = None,
    watch: Watch | None = None,
) -> Prepared:
    """Train the tokenizers and write the tables, or open existing prepared data.

    Existing data is reused if it was prepared with the same settings from files
    with the same names, sizes and modification times; otherwise it is replaced.
    The folder is replaced only when the preparation is complete.  A killed call
    leaves `.NAME.work` next to the folder, and the next call resumes from it.

    With `data.prepared`, the data is fetched into the cache instead, once for all runs; see
    `store/cache.py`.

    Args:
        data: columns, files and filter.
        tokenizers: tokenizers by name.
        folder: output folder; it may contain only prepared data.
        report: called with the progress.
        processes: shards that are tokenized at the same time; default: one for each core, and on a
            cluster as many as it takes.  The result does not depend on it.
        on: where they are tokenized: `local`, `ray`, `dask:ADDRESS`, `slurm`, or settings.
        log: called with single lines of text.
        to: store to which the prepared data is uploaded, a folder or an address such as
            `s3://bucket/wmt`: tables, tokenizers, and the files of `valid` and of the test sets.
        watch: called with the state of each shard, if other processes make them.

    Raises:
        InputError: a file is missing or invalid, columns do not align, the vocabulary size does
            not fit the text, no training row is left, the folder is damaged or contains
            something else, or a store cannot be reached or has other data.
    """
    folder = Path(folder)
    progress, write_log = report or _ignore, log or _ignore
    if processes is not None and processes < 1:
        raise InputError(f"{processes} is not a valid number of processes", help="give 1 or more")
    local = settings_of(on).type == "local"
    store = None if to is None else _writable(to)
    if data.prepared is not None:
        if processes is not None or not local:
            msg = "the data is prepared already, so there is no work for processes"
            raise InputError(msg, location="#/data/prepared", help="leave them out, or remove it")
        prepared = _fetched(data, tokenizers, progress, write_log)
        return _uploaded(prepared, tokenizers, store, progress)
    columns = columns_of(data.columns, {})
    for name in data.test:  # fail now rather than after training
        for _ in records_of(data, name, columns):
            pass
    fingerprint = _fingerprint(data, tokenizers)
    if (folder / MARKER).is_file():
        existing = _read_marker(folder)
        if existing["fingerprint"] == fingerprint:
            remove_leftover(folder)
            prepared = _open(folder, existing, data, tokenizers)
            return _uploaded(prepared, tokenizers, store, progress)
        write_log(f"{folder}: text, settings or the format have changed; preparing the data again")
    with resuming(folder, MARKER, f"{fingerprint} {SHARD}", write_log) as (work, fresh):
        # Another process may have finished it while this one waited.
        if not _is_prepared(folder, fingerprint):
            count = processes or (len(cores()) if local else None)
            reports = Preparation(data, tokenizers, work, fresh, progress, count, on, watch).run()
            marker = {
                "format": FORMAT,
                "fingerprint": fingerprint,
                "report": reports,
                "digest": folder_digest(fresh / "train"),
            }
            (fresh / MARKER).write_text(json.dumps(marker, indent=2) + "\n")
    prepared = _open(folder, _read_marker(folder), data, tokenizers)
    return _uploaded(prepared, tokenizers, store, progress)


def _writable(to: str) -> Store:
    """Return a store for an upload.

    Raises:
        InputError: it is no store, or nothing can be written there.
    """
    try:
        store = store_at(checked_store(to))
    except SettingError as error:
        raise InputError(str(error), location=to, help=error.help) from error
    refuse_unwritable(store)
    return store


def _uploaded(
    prepared: Prepared, tokenizers: Tokenizers, store: Store | None, progress: Report
) -> Prepared:
    """Upload prepared data, and return it with its address.

    Raises:
        InputError: the store cannot be reached or written.
    """
    if store is None:
        return prepared
    inner = [path for split in ("train", "valid") for path in (prepared.folder / split).iterdir()]
    files = {path.relative_to(prepared.folder).as_posix(): path for path in inner}
    files |= {name: prepared.folder / name for name in prepared.files}
    data = prepared.data
    for split in (data.valid, *data.test.values()):
        for name, path in reader_of(split, data.root).contents().items():
            if not Path(name).is_absolute():  # a corpus that mtdata fetches
                files[f"{FILES}/{os.path.normpath(name)}"] = path
    digest = upload(
        files,
        store,
        progress,
        settings=_settings(data, tokenizers),
        report=prepared.report,
        digest=prepared.digest,
    )
    return replace(prepared, address=f"{store.address.rstrip('/')}/{manifest_name(digest)}")


def _fetched(
    data: DataSettings, tokenizers: Tokenizers, progress: Report, log: Callable[[str], None]
) -> Prepared:
    """Open prepared data from elsewhere.

    Raises:
        InputError: it cannot be reached, is damaged, or was prepared with other settings.
    """
    store, digest = _store_of(data)
    settings = _settings(data, tokenizers)

    def accept(manifest: PreparedManifest) -> None:
        if other := [key for key in settings if manifest.settings.get(key) != settings[key]]:
            raise InputError(
                f"the data was prepared with other settings: {', '.join(other)}",
                location="#/data/prepared",
                help="take these settings from the run that prepared it, or prepare the data of"
                " this run: weft prepare RUN --to PLACE",
            )

    def check(folder: Path, manifest: PreparedManifest) -> None:
        opened = _open(
            folder, manifest.model_dump(by_alias=True), _with_files(data, folder), tokenizers
        )
        texts = {name: column for name, column in opened.columns.items() if column.has_text}
        sizes = {
            name: opened.vocabularies[column.settings.tokenizer].vocab_size
            for name, column in texts.items()
        }
        for table in (opened.train, opened.valid):
            table.corpus.refuse_unknown_ids(sizes)
        if folder_digest(folder / "train") != manifest.digest:
            raise damaged(folder / MANIFEST, "has another digest than the table of 'train'")

    copy = fetched(store, digest, accept=accept, check=check, tell=progress, log=log)
    located = _with_files(data, copy.folder)
    return replace(
        _open(copy.folder, copy.manifest.model_dump(by_alias=True), located, tokenizers),
        address=data.prepared,
    )


def _store_of(data: DataSettings) -> tuple[Store, str]:
    """Return the store of the prepared data of a run, and the digest of its manifest.

    Raises:
        InputError: a folder is outside of the root, or a package is not installed.
    """
    address, digest = split_address(str(data.prepared))
    if "://" not in address:
        address = str(resolve(data.root, address))
    return store_at(address), digest


def _with_files(data: DataSettings, folder: Path) -> DataSettings:
    """Return the settings of data whose files are in a prepared folder."""
    return data.model_copy(update={"root": str(folder / FILES), "prepared": None})


def located(data: DataSettings) -> DataSettings:
    """Return the settings with the root below which the files of `valid` and the test sets are.

    It is in the cache if the data is prepared elsewhere, from where it is fetched.

    Raises:
        InputError: it cannot be fetched.
    """
    if data.prepared is None:
        return data
    store, digest = _store_of(data)
    copy = fetched(
        store, digest, accept=_ignore, check=_ignore, tell=_ignore, log=_ignore, part=FILES
    )
    return _with_files(data, copy.folder)


def records_of(
    data: DataSettings, split: str, columns: Mapping[str, Column], source: str | None = None
) -> Iterator[Record]:
    """Yield the records of a split with the fields of some columns.

    Prepared data from elsewhere has all splits but `train`.

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
    if split == "train" and data.prepared is not None:
        raise InputError(
            "prepared data has no training text",
            location="#/data/prepared",
            help="set data.root to the folder of the text, and data.prepared to null",
        )
    records = splits[split] if source is None else splits[split].sources[source]
    reader, fields = reader_of(records, located(data).root), fields_of(columns)
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


def _settings(data: DataSettings, tokenizers: Tokenizers) -> dict[str, Any]:
    """Return the settings that determine the prepared data, besides the content of files."""
    return {
        "columns": {name: column.prepared() for name, column in data.columns.items()},
        "tokenizers": {
            name: tokenizer.model_dump(mode="json") for name, tokenizer in tokenizers.items()
        },
        "train": data.train.model_dump(mode="json", by_alias=True),
        "valid": data.valid.model_dump(mode="json", by_alias=True),
        "filter": data.filter.model_dump(mode="json"),
    }


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
    settings = _settings(data, tokenizers)
    contents: dict[str, Any] = {
        "format": FORMAT,
        **{key: settings[key] for key in ("columns", "tokenizers", "filter")},
        "readers": readers,
        "files": stats,
    }
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()
