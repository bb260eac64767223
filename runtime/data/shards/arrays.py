"""Arrays of a corpus on disk: one row for each row of the corpus, of fixed or of varying length.

An array is a file `NAME.bin` of little-endian numbers, which is mapped into memory.  If rows
differ in length, `NAME.offsets` has int64 numbers, rows + 1: where each row begins in the `.bin`,
and where the last ends.
"""

from __future__ import annotations

import mmap
from array import array
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ....specs.findings import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

FLUSH = 1 << 20
"""Numbers buffered in memory before they are written."""
MANY = 1 << 16
"""Rows whose lengths are read at once for a plan, not for a batch."""
OFFSET = np.dtype("<i8")
AGAIN = "delete the folder and prepare the data again"
_TYPECODES = {"<u2": "H", "<u4": "I"}
"""Type codes of Python arrays, which buffer lists of ids faster than numpy."""


@dataclass(frozen=True, slots=True)
class ArrayField:
    """Type of an array: what one row contains."""

    dtype: str
    """Type of the numbers, little-endian, such as `<i4`."""
    shape: tuple[int, ...] = ()
    """Shape of a row; of each item of a row if rows differ in length."""
    ragged: bool = False
    """Whether rows differ in length along an additional first axis."""

    @property
    def item(self) -> int:
        """Numbers in one item."""
        return prod(self.shape)

    def as_dict(self) -> dict[str, Any]:
        """Return the type as plain data."""
        return {"dtype": self.dtype, "shape": list(self.shape), "ragged": self.ragged}

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> ArrayField:
        """Return the type that `as_dict` wrote."""
        shape = tuple(int(size) for size in value["shape"])
        return cls(number_dtype(value["dtype"]), shape, bool(value["ragged"]))


class ArrayWriter:
    """Writer of one array, row by row or many rows at a time."""

    def __init__(self, folder: Path, name: str, kind: ArrayField, files: ExitStack) -> None:
        """Open the files and register them with `files`, which closes them."""
        self.kind = kind
        self.items = 0
        """Number of items written; of a fixed field, the number of rows."""
        self.rows = 0
        self._dtype = np.dtype(kind.dtype)
        self._bin = files.enter_context((folder / f"{name}.bin").open("wb"))
        self._offsets = None
        if kind.ragged:
            self._offsets = files.enter_context((folder / f"{name}.offsets").open("wb"))
        self._ids = array(_TYPECODES.get(self._dtype.str, "I"))
        self._ends = array("q", [0])

    def add(self, ids: Sequence[int]) -> None:
        """Append one row of ids to a ragged array of uint16 or uint32.

        Raises:
            OverflowError: an id does not fit the dtype.
        """
        self._ids.extend(ids)
        self.items += len(ids)
        self.rows += 1
        self._ends.append(self.items)
        if len(self._ids) + len(self._ends) > FLUSH:
            self._flush()

    def add_row(self, row: NDArray[Any]) -> None:
        """Append one row.

        Raises:
            ValueError: the row has another shape than the field.
        """
        expected_shape = (len(row), *self.kind.shape) if self.kind.ragged else self.kind.shape
        if row.shape != expected_shape:
            msg = f"a row of shape {row.shape} does not fit the field {self.kind}"
            raise ValueError(msg)
        if self.kind.ragged:
            self.extend(row, np.array([len(row)]))
        else:
            self._bin.write(np.asarray(row, dtype=self._dtype).tobytes())
            self.items += 1
            self.rows += 1

    def extend(self, items: NDArray[Any], lengths: NDArray[Any]) -> None:
        """Append many rows to a ragged array.

        Args:
            items: concatenated items of the rows.
            lengths: number of items of each row.
        """
        self._flush()
        self._bin.write(np.asarray(items, dtype=self._dtype).tobytes())
        ends = self.items + np.cumsum(lengths, dtype=OFFSET)
        if self._offsets is not None:
            self._offsets.write(ends.tobytes())
        self.items += len(items)
        self.rows += len(lengths)

    def _flush(self) -> None:
        """Write the buffered numbers."""
        if self._ids:
            self._bin.write(np.array(self._ids, dtype=self._dtype).tobytes())
            del self._ids[:]
        if self._offsets is not None and self._ends:
            self._offsets.write(np.array(self._ends, dtype=OFFSET).tobytes())
            del self._ends[:]

    def finish(self) -> None:
        """Flush and close the files."""
        self._flush()
        self._bin.close()
        if self._offsets is not None:
            self._offsets.close()


@dataclass(frozen=True, slots=True)
class StoredLengths:
    """Number of items of each row of a ragged array, plus a number; computed when it is read.

    So the processes of a machine share the memory of the offsets, which is that of a mapped file.
    """

    offsets: NDArray[np.int64]
    added: int = 0
    path: Path = Path()
    """File of the offsets, for the message."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.offsets) - 1

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the lengths of the rows of a slice without a step, or with some numbers.

        Raises:
            InputError: the offsets decrease.
        """
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self))
            lengths = np.diff(self.offsets[start : max(start, stop) + 1])
        else:
            lengths = self.offsets[rows + 1] - self.offsets[rows]
        if lengths.min(initial=0) < 0:
            raise damaged(self.path, "has decreasing offsets")
        if len(lengths) >= MANY:
            give_back(self.offsets)
        return lengths + self.added


@dataclass(frozen=True, slots=True)
class RowsAfter:
    """Whether each row of a ragged array is the first one, or follows a row that ends with an item.

    It is computed when it is read.  No row may be empty.
    """

    array: Array
    item: int

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.array)

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return it for the rows of a slice, or with some numbers."""
        numbers = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else rows
        last = self.array.items[self.array.offsets[numbers] - 1]  # of the row before
        starts: NDArray[np.bool_] = (last == self.item) | (numbers == 0)
        return starts


@dataclass(frozen=True, slots=True)
class Array:
    """Array of a corpus, or of rows in memory; read on demand."""

    kind: ArrayField
    items: NDArray[Any]
    """Items, or rows of a fixed field; the first axis counts them."""
    offsets: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))
    """Where each row begins; [0] for a fixed field."""
    path: Path = Path()
    """File of the offsets, for messages."""

    @classmethod
    def open(cls, folder: Path, name: str, kind: ArrayField, rows: int, items: int) -> Array:
        """Map an array.

        Raises:
            InputError: a file is missing or does not match the given numbers.
        """
        flat = mapped(folder / f"{name}.bin", np.dtype(kind.dtype), items * kind.item)
        if not kind.ragged:
            return cls(kind, flat.reshape(rows, *kind.shape))
        path = folder / f"{name}.offsets"
        offsets = mapped(path, OFFSET, rows + 1)
        if offsets[0] != 0 or offsets[-1] != items:
            raise damaged(path, "does not match the header")
        return cls(kind, flat.reshape(items, *kind.shape), offsets, path)

    @classmethod
    def of(cls, kind: ArrayField, rows: Iterable[NDArray[Any]]) -> Array:
        """Return the array of some rows, in memory."""
        dtype = np.dtype(kind.dtype)
        arrays = [np.asarray(row, dtype=dtype) for row in rows]
        if not kind.ragged:
            return cls(kind, np.stack(arrays) if arrays else np.empty((0, *kind.shape), dtype))
        offsets = np.cumsum([0, *map(len, arrays)], dtype=np.int64)
        items = np.concatenate([np.empty((0, *kind.shape), dtype), *arrays])
        return cls(kind, items, offsets)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.offsets) - 1 if self.kind.ragged else len(self.items)

    def row(self, row: int) -> NDArray[Any]:
        """Return one row."""
        if not self.kind.ragged:
            return np.asarray(self.items[row])
        return self.items[self.offsets[row] : self.offsets[row + 1]]

    def lengths(self, added: int = 0) -> StoredLengths:
        """Return the number of items of each row of a ragged array.

        Args:
            added: positions that each row has in addition, such as those of special tokens.
        """
        return StoredLengths(self.offsets, added, self.path)

    def padded(
        self, rows: NDArray[np.int64], fill: float, *, dtype: Any = np.int64, spare: int = 0
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return rows of a ragged array as a table, and their lengths.

        Args:
            rows: row numbers; shape (B,), not empty.
            fill: value of the padding.
            dtype: type of the table.
            spare: additional positions at the end of the longest row.
        """
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        shape = (len(rows), int(lengths.max()) + spare, *self.kind.shape)
        table = np.full(shape, fill, dtype=dtype)
        steps = np.arange(shape[1])
        filled = steps < lengths[:, None]
        table[filled] = self.items[(starts[:, None] + steps)[filled]]
        return table, lengths


def give_back(numbers: NDArray[Any]) -> None:
    """Take the pages of a mapped file out of the process, until they are read again.

    So what a process has read once does not count as its memory.  Numbers in memory stay.
    """
    base: Any = numbers
    while base is not None and not isinstance(base, mmap.mmap):
        base = getattr(base, "base", None)
    if base is not None and hasattr(base, "madvise"):  # not on Windows
        base.madvise(mmap.MADV_DONTNEED)


def mapped(path: Path, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """Map a file of exactly `count` numbers.

    Raises:
        InputError: the file is missing or has another length.
    """
    try:
        size = path.stat().st_size
    except OSError as error:
        raise damaged(path, f"cannot be read: {error.strerror}") from error
    if size != count * dtype.itemsize:
        raise damaged(path, f"has {size} bytes, not {count * dtype.itemsize}")
    if count == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r").view(np.ndarray)


def damaged(path: Path, how: str) -> InputError:
    """Return the error for a file that does not match the header."""
    return InputError(f"corpus is damaged: {path.name} {how}", location=str(path), help=AGAIN)


def number_dtype(text: str) -> str:
    """Return the type of numbers that a header names.

    Raises:
        ValueError: it is one of objects, whose bytes would be taken for addresses, or of texts.
    """
    dtype = np.dtype(text)
    if dtype.kind not in "biuf":
        msg = f"{text!r} is not a type of numbers"
        raise ValueError(msg)
    return dtype.str


def id_dtype(vocab_size: int) -> np.dtype[Any]:
    """Return the dtype in which ids below `vocab_size` are stored."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")
