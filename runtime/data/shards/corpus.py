"""Memory-mapped prepared data on disk: a table of columns.

A corpus is a folder; numbers are little-endian:

    NAME.bin, NAME.offsets   ids of a text column: the concatenated ids of all rows, uint16 or
                             uint32, without end tokens; see `arrays.py`
    NAME.FIELD.bin, ...      arrays of other columns, and other arrays of text columns
    header.json              format, counts, dtype of ids, tokenizers, types of the other arrays

The files are mapped into memory, so a corpus of any size opens immediately and the
operating system reads only the used parts.
"""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ....specs.findings import InputError
from ..folders import building
from ..plans.lengths import STRIDE, LengthSummary, summarized
from .arrays import (
    AGAIN,
    Array,
    ArrayField,
    ArrayWriter,
    StoredLengths,
    damaged,
    id_dtype,
    number_dtype,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from numpy.typing import NDArray

FORMAT = 1
HEADER = "header.json"
SIDES = ("source", "target")
_NAME = re.compile(r"\w[\w.]*")


class CorpusWriter:
    """Context manager that writes a corpus row by row, in bounded memory.

    The folder appears when the block ends; if the block raises, it is not created.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        vocab_size: int,
        tokenizers: Mapping[str, str] | None = None,
        columns: Sequence[str] = SIDES,
        fields: Mapping[str, ArrayField] | None = None,
    ) -> None:
        """Initialize the writer.

        Args:
            folder: output folder; an older corpus there is replaced.
            vocab_size: upper bound of the ids of all text columns; selects 2 or 4 bytes per id.
            tokenizers: digest of the tokenizer of each text column.
            columns: names of the text columns.
            fields: types of the other arrays, by name.
        """
        self.folder = Path(folder)
        self.vocab_size = vocab_size
        self.report: dict[str, object] = {}
        """Report stored in the header; may be set at any time before the block ends."""
        self.sources: Mapping[str, int] = {}
        """Rows of each source, if they have names; may be set until the block ends."""
        self.arrays: dict[str, ArrayWriter] = {}
        """Writers of all arrays, by name; available inside the block."""
        self._columns, self._fields = tuple(columns), dict(fields or {})
        self._dtype = id_dtype(vocab_size).str
        self._tokenizers = dict(tokenizers or {})
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Open the files.

        Raises:
            InputError: the folder exists and is not a corpus.
        """
        ids = dict.fromkeys(self._columns, ArrayField(self._dtype, ragged=True))
        with ExitStack() as opening:
            self._fresh = opening.enter_context(building(self.folder, HEADER))
            self.arrays = {
                name: ArrayWriter(self._fresh, name, kind, opening)
                for name, kind in (ids | self._fields).items()
            }
            self._open = opening.pop_all()
        return self

    def add(self, *rows: Sequence[int]) -> None:
        """Append one row to each text column, as ids without end tokens.

        Raises:
            OverflowError: an id does not fit the dtype of the corpus.
        """
        for name, ids in zip(self._columns, rows, strict=True):
            self.arrays[name].add(ids)

    def extend(self, side: int, ids: NDArray[Any], lengths: NDArray[Any]) -> None:
        """Append many rows to one text column; the caller adds as many to the others.

        Args:
            side: number of the column.
            ids: concatenated ids of the rows, without end tokens.
            lengths: number of ids of each row.
        """
        self.arrays[self._columns[side]].extend(ids, lengths)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Flush the buffers, write the header, and move the folder to its final path.

        Raises:
            ValueError: the arrays have different numbers of rows.
        """
        with self._open as closing:
            if error is not None:
                closing.__exit__(kind, error, trace)
                return
            for writer in self.arrays.values():
                writer.finish()
            rows = {writer.rows for writer in self.arrays.values()}
            if len(rows) > 1:
                msg = f"the arrays have different numbers of rows: {sorted(rows)}"
                raise ValueError(msg)
            others = {
                name: {**field.as_dict(), "items": self.arrays[name].items}
                for name, field in self._fields.items()
            }
            header = {
                "format": FORMAT,
                "pairs": max(rows, default=0),
                "dtype": self._dtype,
                "vocab_size": self.vocab_size,
                "tokens": {name: self.arrays[name].items for name in self._columns},
                "tokenizers": self._tokenizers,
                "report": self.report,
                **({"arrays": others} if others else {}),
                **({"sources": dict(self.sources)} if self.sources else {}),
            }
            (self._fresh / HEADER).write_text(json.dumps(header, indent=2) + "\n")


class Corpus:
    """Prepared data, read from disk on demand."""

    def __init__(self, folder: Path, header: Mapping[str, Any]) -> None:
        """Map the files; use `open` to open a corpus.

        Raises:
            InputError: a file does not have the length given in the header.
        """
        self.folder = folder
        self.header = header
        """Content of `header.json`."""
        self.report: dict[str, Any] = dict(header["report"])
        """How the corpus was made: rows read, kept and dropped."""
        rows, ids = int(header["pairs"]), ArrayField(number_dtype(header["dtype"]), ragged=True)
        self.columns: tuple[str, ...] = tuple(header["tokens"])
        """Names of the text columns."""
        entries = [(name, ids, int(items)) for name, items in header["tokens"].items()]
        entries += [
            (name, ArrayField.of(entry), int(entry["items"]))
            for name, entry in header.get("arrays", {}).items()
        ]
        if not all(_NAME.fullmatch(name) for name, _, _ in entries):
            raise damaged(folder / HEADER, "has the name of a file elsewhere")
        self.arrays: dict[str, Array] = {
            name: Array.open(folder, name, kind, rows, items) for name, kind, items in entries
        }
        """All arrays: the ids of each text column by its name, and the others."""
        self._rows = rows
        self.sources = {name: int(count) for name, count in header.get("sources", {}).items()}
        """Rows of each source, in order; empty if the rows are of one source."""
        if self.sources and sum(self.sources.values()) != rows:
            raise damaged(folder / HEADER, "has sources that do not add up to its pairs")

    @classmethod
    def open(cls, folder: str | Path) -> Corpus:
        """Open a corpus.

        Raises:
            InputError: the folder is not a corpus, has another format, or is damaged.
        """
        folder = Path(folder)
        path = folder / HEADER
        try:
            header = json.loads(path.read_text())
            written = header["format"]
        except OSError as error:
            msg = f"the folder is not a corpus: {error.strerror}"
            raise InputError(msg, location=str(path), help="prepare the data first") from error
        except (ValueError, KeyError, TypeError) as error:
            msg = "header is damaged"
            raise InputError(msg, location=str(path), help=AGAIN) from error
        if written != FORMAT:
            msg = f"corpus has format {written}, but this version reads format {FORMAT}"
            raise InputError(
                msg,
                location=str(path),
                help=AGAIN,
            )
        try:
            return cls(folder, header)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            msg = "header is damaged"
            raise InputError(msg, location=str(path), help=AGAIN) from error

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._rows

    def refuse_unknown_ids(self, sizes: Mapping[str, int]) -> None:
        """Check the numbers of a corpus that somebody else wrote.

        Args:
            sizes: vocabulary size of each text column.

        Raises:
            InputError: an id is none of the vocabulary, or offsets decrease.
        """
        for name, array in self.arrays.items():
            for start in range(0, self._rows if array.kind.ragged else 0, STRIDE):
                array.lengths()[start : start + STRIDE]  # raises an error if offsets decrease
            for start in range(0, len(array.items) if name in self.columns else 0, STRIDE):
                if array.items[start : start + STRIDE].max() >= sizes[name]:
                    raise damaged(self.folder / f"{name}.bin", "has ids that its tokenizer lacks")

    @property
    def starts(self) -> None:
        """None: only a table knows whether rows are segments of documents."""
        return

    @cached_property
    def axes(self) -> dict[str, StoredLengths]:
        """Tokens of each row of each text column, including the end token."""
        return {name: self.arrays[name].lengths(1) for name in self.columns}

    @cached_property
    def summary(self) -> LengthSummary:
        """What plans of batches must know of the lengths of all rows."""
        return summarized(self.axes.values())

    def pair(self, row: int) -> tuple[NDArray[Any], ...]:
        """Return the ids of each text column of one row, without end tokens.

        Raises:
            IndexError: the row is out of range; rows count from 0.
        """
        if not 0 <= row < self._rows:
            msg = f"row {row} is out of range for a corpus of {self._rows} pairs"
            raise IndexError(msg)
        return tuple(self.arrays[name].row(row) for name in self.columns)
