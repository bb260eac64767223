"""Memory-mapped tokenized parallel corpus on disk.

A corpus is a folder of five files; numbers are little-endian:

    source.bin, target.bin          concatenated ids of all sentences,
                                    uint16 or uint32, without end tokens
    source.offsets, target.offsets  int64, pairs + 1: where each sentence
                                    begins in its .bin, and where the last ends
    header.json                     format, counts, dtype, tokenizers

The files are mapped into memory, so a corpus of any size opens immediately and the
operating system reads only the used parts.
"""

from __future__ import annotations

import json
from array import array
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ....specs.findings import InputError
from ..folders import building
from ..mixture import Part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from numpy.typing import NDArray

FORMAT = 1
HEADER = "header.json"
SIDES = ("source", "target")
FLUSH = 1 << 20
"""Numbers buffered in memory before they are written."""
OFFSET = np.dtype("<i8")
AGAIN = "delete the folder and prepare the data again"
STRIDE = 1 << 20
"""Offsets per block when computing lengths."""


def id_dtype(vocab_size: int) -> np.dtype[Any]:
    """Return the dtype in which ids below `vocab_size` are stored."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


class CorpusWriter:
    """Context manager that writes a corpus pair by pair, in bounded memory.

    The folder appears when the block ends; if the block raises, it is not created.
    """

    def __init__(
        self, folder: str | Path, *, vocab_size: int, tokenizers: Mapping[str, str] | None = None
    ) -> None:
        """Initialize the writer.

        Args:
            folder: output folder; an older corpus there is replaced.
            vocab_size: upper bound of the ids of both sides; selects 2 or 4 bytes per id.
            tokenizers: digest of the tokenizer of each side.
        """
        self.folder = Path(folder)
        self.vocab_size = vocab_size
        self.report: dict[str, object] = {}
        """Report stored in the header; may be set at any time before the block ends."""
        self.parts: Sequence[Part] = ()
        """Pairs and weight of each file if files have weights; may be set until the block ends."""
        self._dtype = id_dtype(vocab_size).str
        self._tokenizers = dict(tokenizers or {})
        self._open = ExitStack()
        self._pairs = 0

    def __enter__(self) -> Self:
        """Open the files.

        Raises:
            InputError: the folder exists and is not a corpus.
        """
        with ExitStack() as opening:
            self._fresh = opening.enter_context(building(self.folder, HEADER))
            self._sides = tuple(_Side(self._fresh, side, self._dtype, opening) for side in SIDES)
            self._open = opening.pop_all()
        return self

    def add(self, source: Sequence[int], target: Sequence[int]) -> None:
        """Append one pair of sentences, as ids without end tokens.

        Raises:
            OverflowError: an id does not fit the dtype of the corpus.
        """
        self._sides[0].add(source)
        self._sides[1].add(target)
        self._pairs += 1

    def extend(self, side: int, ids: NDArray[Any], lengths: NDArray[Any]) -> None:
        """Append many sentences to one side; the caller adds as many to the other side.

        Args:
            side: 0 for source, 1 for target.
            ids: concatenated ids of the sentences, without end tokens.
            lengths: number of ids of each sentence.
        """
        self._sides[side].extend(ids, lengths)
        if side == 0:
            self._pairs += len(lengths)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Flush the buffers, write the header, and move the folder to its final path."""
        with self._open as closing:
            if error is not None:
                closing.__exit__(kind, error, trace)
                return
            for side in self._sides:
                side.finish()
            header = {
                "format": FORMAT,
                "pairs": self._pairs,
                "dtype": self._dtype,
                "vocab_size": self.vocab_size,
                "tokens": dict(zip(SIDES, (side.tokens for side in self._sides), strict=True)),
                "tokenizers": self._tokenizers,
                "report": self.report,
                **({"parts": [list(part) for part in self.parts]} if self.parts else {}),
            }
            (self._fresh / HEADER).write_text(json.dumps(header, indent=2) + "\n")


class _Side:
    """Writer of the two files of one side."""

    def __init__(self, folder: Path, side: str, dtype: str, files: ExitStack) -> None:
        """Open the files and register them with `files`, which closes them."""
        self.tokens = 0
        self._dtype = np.dtype(dtype)
        self._bin = files.enter_context((folder / f"{side}.bin").open("wb"))
        self._offsets = files.enter_context((folder / f"{side}.offsets").open("wb"))
        self._ids = array("H" if self._dtype.itemsize == 2 else "I")  # noqa: PLR2004 - bytes
        self._ends = array("q", [0])

    def add(self, ids: Sequence[int]) -> None:
        """Append one sentence."""
        self._ids.extend(ids)
        self.tokens += len(ids)
        self._ends.append(self.tokens)
        if len(self._ids) + len(self._ends) > FLUSH:
            self._flush()

    def extend(self, ids: NDArray[Any], lengths: NDArray[Any]) -> None:
        """Append many sentences."""
        self._flush()
        self._bin.write(np.asarray(ids, dtype=self._dtype).tobytes())
        ends = self.tokens + np.cumsum(lengths, dtype=OFFSET)
        self._offsets.write(ends.tobytes())
        self.tokens += len(ids)

    def _flush(self) -> None:
        """Write the buffered numbers."""
        self._bin.write(np.array(self._ids, dtype=self._dtype).tobytes())
        self._offsets.write(np.array(self._ends, dtype=OFFSET).tobytes())
        del self._ids[:]
        del self._ends[:]

    def finish(self) -> None:
        """Flush and close the files."""
        self._flush()
        self._bin.close()
        self._offsets.close()


class Corpus:
    """Tokenized parallel corpus, read from disk on demand."""

    def __init__(self, folder: Path, header: Mapping[str, Any]) -> None:
        """Map the files; use `open` to open a corpus.

        Raises:
            InputError: a file does not have the length given in the header.
        """
        self.folder = folder
        self.header = header
        """Content of `header.json`."""
        self.report: dict[str, Any] = dict(header["report"])
        """How the corpus was made: pairs read, kept and dropped."""
        pairs, dtype = int(header["pairs"]), np.dtype(header["dtype"])
        tokens = header["tokens"]
        self._source = _map(folder / "source.bin", dtype, int(tokens["source"]))
        self._target = _map(folder / "target.bin", dtype, int(tokens["target"]))
        self._source_offsets = _map(folder / "source.offsets", OFFSET, pairs + 1)
        self._target_offsets = _map(folder / "target.offsets", OFFSET, pairs + 1)
        for side, offsets in zip(SIDES, (self._source_offsets, self._target_offsets), strict=True):
            if offsets[0] != 0 or offsets[-1] != int(tokens[side]):
                raise _damaged(folder / f"{side}.offsets", "does not match the header")
        self._pairs = pairs
        self.parts = [Part(int(count), float(weight)) for count, weight in header.get("parts", ())]
        """Pairs and weight of each file; empty if every pair occurs once in every epoch."""
        if self.parts and sum(part.pairs for part in self.parts) != pairs:
            raise _damaged(folder / HEADER, "has parts that do not add up to its pairs")

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
            raise InputError(msg, place=str(path), help="prepare the data first") from error
        except (ValueError, KeyError, TypeError) as error:
            msg = "header is damaged"
            raise InputError(msg, place=str(path), help=AGAIN) from error
        if written != FORMAT:
            msg = f"corpus has format {written}, but this version reads format {FORMAT}"
            raise InputError(
                msg,
                place=str(path),
                help=AGAIN,
            )
        try:
            return cls(folder, header)
        except (KeyError, TypeError, ValueError) as error:
            msg = "header is damaged"
            raise InputError(msg, place=str(path), help=AGAIN) from error

    def __len__(self) -> int:
        """Return the number of pairs."""
        return self._pairs

    @cached_property
    def source_lengths(self) -> NDArray[np.int32]:
        """Tokens of each source sentence, without the end token; shape (pairs,).

        Raises:
            InputError: the offsets are damaged.
        """
        return _lengths(self._source_offsets, self.folder / "source.offsets")

    @cached_property
    def target_lengths(self) -> NDArray[np.int32]:
        """Tokens of each target sentence, without the end token; shape (pairs,).

        Raises:
            InputError: the offsets are damaged.
        """
        return _lengths(self._target_offsets, self.folder / "target.offsets")

    def pair(self, row: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the ids of both sides of one pair, without end tokens.

        Raises:
            IndexError: the row is out of range; rows count from 0.
        """
        if not 0 <= row < self._pairs:
            msg = f"row {row} is out of range for a corpus of {self._pairs} pairs"
            raise IndexError(msg)
        return (
            self._source[self._source_offsets[row] : self._source_offsets[row + 1]],
            self._target[self._target_offsets[row] : self._target_offsets[row + 1]],
        )

    def padded(
        self, side: str, rows: NDArray[np.int64], *, pad: int, eos: int
    ) -> NDArray[np.int64]:
        """Return sentences of one side as a table, each with an end token and padding.

        Args:
            side: "source" or "target".
            rows: rows of the pairs; shape (B,), not empty.
            pad: padding id.
            eos: end token id.

        Returns:
            Ids, B x (longest + 1).
        """
        left = side == "source"
        ids, offsets = (
            (self._source, self._source_offsets) if left else (self._target, self._target_offsets)
        )
        starts, lengths = offsets[rows], offsets[rows + 1] - offsets[rows]
        table = np.full((len(rows), int(lengths.max()) + 1), pad, dtype=np.int64)
        steps = np.arange(table.shape[1])
        filled = steps < lengths[:, None]
        table[filled] = ids[(starts[:, None] + steps)[filled]]
        table[np.arange(len(rows)), lengths] = eos
        return table


def _map(path: Path, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """Map a file of exactly `count` numbers.

    Raises:
        InputError: the file is missing or has another length.
    """
    try:
        size = path.stat().st_size
    except OSError as error:
        raise _damaged(path, f"cannot be read: {error.strerror}") from error
    if size != count * dtype.itemsize:
        raise _damaged(path, f"has {size} bytes, not {count * dtype.itemsize}")
    if count == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r").view(np.ndarray)


def _lengths(offsets: NDArray[np.int64], path: Path) -> NDArray[np.int32]:
    """Return the differences of the offsets.

    Raises:
        InputError: the offsets decrease.
    """
    lengths = np.empty(len(offsets) - 1, dtype=np.int32)
    for start in range(0, len(lengths), STRIDE):
        part = np.diff(offsets[start : start + STRIDE + 1])
        if part.min() < 0:
            raise _damaged(path, "has decreasing offsets")
        lengths[start : start + STRIDE] = part
    return lengths


def _damaged(path: Path, how: str) -> InputError:
    """Return the error for a file that does not match the header."""
    return InputError(f"corpus is damaged: {path.name} {how}", place=str(path), help=AGAIN)
