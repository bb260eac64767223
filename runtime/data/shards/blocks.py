"""Blocks and segments: rows of at most a fixed length, cut from the texts of a column.

For language models: every text ends with the end token.  As blocks, texts follow each other, and a
row begins wherever the previous one is full, also within a text.  As segments, each text begins a
new row, and its last row may be shorter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from .arrays import ArrayWriter


@dataclass(frozen=True, slots=True)
class BlockSettings:
    """How texts are joined and cut."""

    size: int
    """Tokens of a row."""
    before: tuple[int, ...]
    """Special tokens before each text."""
    after: tuple[int, ...]
    """Special tokens after each text."""
    joined: bool = True
    """Whether texts follow each other in a row; if not, each text begins a new row."""


class Blocks:
    """Writer that cuts texts into rows; at most one unfinished row is in memory."""

    def __init__(self, writer: ArrayWriter, settings: BlockSettings) -> None:
        """Store the writer of the rows."""
        self._writer, self._settings = writer, settings
        self._rest: NDArray[Any] = np.empty(0, dtype=writer.kind.dtype)

    def extend(self, ids: NDArray[Any], lengths: NDArray[Any]) -> None:
        """Append texts.

        Args:
            ids: concatenated ids of the texts.
            lengths: number of ids of each text.
        """
        size = self._settings.size
        joined = joined_texts(ids, lengths, self._settings.before, self._settings.after)
        if not self._settings.joined:
            added = len(self._settings.before) + len(self._settings.after)
            self._writer.extend(joined, _cut(np.asarray(lengths, dtype=np.int64) + added, size))
            return
        stream = np.concatenate([self._rest, joined.astype(self._rest.dtype)])
        block_count = len(stream) // size
        self._writer.extend(stream[: block_count * size], np.full(block_count, size))
        self._rest = stream[block_count * size :]

    def flush(self) -> None:
        """Write the last row, which may be shorter, if there is one."""
        if len(self._rest):
            self._writer.extend(self._rest, np.array([len(self._rest)]))
            self._rest = self._rest[:0]


def _cut(lengths: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return the lengths of the rows of each text, of which all but its last one have `size`."""
    counts = -(-lengths // size)
    rows = np.full(int(counts.sum()), size, dtype=np.int64)
    rows[np.cumsum(counts) - 1] = lengths - (counts - 1) * size
    return rows


def joined_texts(
    ids: NDArray[Any], lengths: NDArray[Any], before: Sequence[int], after: Sequence[int]
) -> NDArray[Any]:
    """Return texts joined into one, each with special tokens before and after it."""
    lengths = np.asarray(lengths, dtype=np.int64)
    added = len(before) + len(after)
    ends = np.cumsum(lengths + added)
    stream = np.empty(len(ids) + added * len(lengths), dtype=np.asarray(ids).dtype)
    starts = ends - lengths - added
    for offset, token in enumerate(before):
        stream[starts + offset] = token
    for index, token in enumerate(after):
        stream[ends - len(after) + index] = token
    texts = np.repeat(np.arange(len(lengths)), lengths)
    stream[np.arange(len(ids)) + texts * added + len(before)] = ids
    return stream
