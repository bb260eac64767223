"""Preparation of pairs of texts, as runs of format 2 describe them.

`prepare` converts their settings to a table with the columns `source` and `target`, and opens the
prepared table as pairs.  See `tables.py` for the prepared folder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import TypeAdapter

from .corpora import fetched
from .preparing.table_settings import TableSettings, Tokenizers
from .preparing.tables import prepare_tables
from .preparing.upgrade import upgrade_data
from .treebank.pairs import Parallel, Reading
from .treebank.reader import TreeReading

if TYPE_CHECKING:
    from .preparing.preparation import Report
    from .preparing.tables import PreparedTables
    from .settings import DataSettings, TokenizerSettings
    from .shards.corpus import Corpus
    from .symbols import Vocabulary
    from .tokenizer import Tokenizer


@dataclass(frozen=True)
class Prepared:
    """Pairs ready for training."""

    folder: Path
    """The prepared folder."""
    source_tokenizer: Tokenizer
    """Tokenizer of the source side."""
    target_tokenizer: Vocabulary
    """Vocabulary of the target side; the same object when shared."""
    train: Corpus
    """Filtered training pairs."""
    valid: Corpus
    """All non-empty validation pairs."""
    report: dict[str, Any]
    """Pairs read, kept and dropped of `train` and `valid`; vocabulary sizes."""
    data: DataSettings
    """Settings that name the text files."""
    reading: Reading
    """Reader of the text files."""
    digest: str
    """SHA-256 digest of the training pairs."""
    tables: PreparedTables
    """The same data as tables of columns."""

    def valid_text(self) -> tuple[list[str], list[str]]:
        """Return all validation lines, source and target, unprocessed."""
        pairs = list(self.reading.pairs(self.data.valid, self.data.root))
        return [left for left, _ in pairs], [right for _, right in pairs]


def prepare(
    data: DataSettings,
    tokenizer: TokenizerSettings,
    folder: str | Path,
    *,
    reading: Reading | None = None,
    report: Report | None = None,
    workers: int | None = None,
    log: Callable[[str], None] | None = None,
) -> Prepared:
    """Train the tokenizers and write the corpora, or open existing prepared data.

    Args:
        data: files and filter.
        tokenizer: kind and size.
        folder: output folder; it may contain only prepared data.
        reading: reader of the files; defaults to parallel text.
        report: as for `prepare_tables`.
        workers: as for `prepare_tables`.
        log: as for `prepare_tables`.

    Raises:
        InputError: as for `prepare_tables`.
    """
    reader = reading or Parallel()
    for files in (data.train, data.valid, *data.test.values()):
        fetched(files, log)
        for part in (files,) if files.trees or isinstance(reader, TreeReading) else ():
            next(chain(reader.pairs(part, data.root)), None)  # refuse the wrong kind of files
    settings, tokenizers = table_of(data, tokenizer, reader)
    made = prepare_tables(settings, tokenizers, folder, report=report, workers=workers, log=log)
    own = {name: made.data.columns[name] for name in ("source", "target")}
    source, target = (made.vocabularies[getattr(one, "tokenizer")] for one in own.values())  # noqa: B009
    return Prepared(
        folder=made.folder,
        source_tokenizer=cast("Tokenizer", source),
        target_tokenizer=target,
        train=made.train.corpus,
        valid=made.valid.corpus,
        report=made.report,
        data=data,
        reading=reader,
        digest=made.digest,
        tables=made,
    )


def table_of(
    data: DataSettings, tokenizer: TokenizerSettings, reading: Reading
) -> tuple[TableSettings, Tokenizers]:
    """Return the settings of the table with the same pairs."""
    run: dict[str, Any] = {
        "data": data.model_dump(mode="json", exclude_defaults=True),
        "tokenizer": tokenizer.model_dump(mode="json", exclude_defaults=True),
    }
    if isinstance(reading, TreeReading):
        run["task"] = "parsing"
        run["parsing"] = reading.parsing.model_dump(mode="json", exclude_defaults=True)
        run["tokenizer"].setdefault("target", "pieces")
    made = upgrade_data(run)
    settings = TableSettings.model_validate(made["data"])
    tokenizers = TypeAdapter[Tokenizers](Tokenizers).validate_python(made["tokenizers"])
    return settings, tokenizers
