"""Shards: independently tokenized parts of a text, for parallel and resumable preparation.

A shard is one file: a line of JSON (dtype, tokens of each column, counts of the filter,
digest of the rest) followed by these little-endian arrays:

    ids of the first text column, of the second, ...    dtype of the corpus
    tokens of each row of each text column              uint32
    hash of each row, if duplicates are dropped         uint64
    whether each row that was read is kept, if wanted   uint8
    UTF-8 text of columns that keep it                  uint8
    bytes of each row of these texts                    uint32

The assignment of rows to shards depends only on the files, so the result is the same for
any number of processes.  `making.py` makes them on an executor, and `merge_shards.py` merges
them into a corpus.
"""

from __future__ import annotations

import hashlib
import io
import json
from array import array
from collections import deque
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ....specs.findings import InputError
from ..text_files import decode, raw_lines
from ..tokenizer import Tokenizer
from ..words import source_text
from .arrays import id_dtype
from .filters import FilterCount

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from numpy.typing import NDArray

    from ..settings import FilterSettings
    from ..symbols import Vocabulary
    from ..vocabularies import VocabularyFile

SHARD = 50_000
"""Maximum rows in a shard."""
LONGEST_PIECE = 1_000
"""More characters than any piece of a tokenizer has."""
AT_ONCE = 5_000
"""Rows tokenized at a time: Python lists of ids take much memory."""
LENGTH, HASH = np.dtype("<u4"), np.dtype("<u8")


@dataclass(frozen=True, slots=True)
class ShardText:
    """Text of one shard."""

    number: int
    """Number of the shard, from 0."""
    rows: int
    paths: tuple[Path, ...]
    """File of each text column."""
    first: int
    """Number of the first line in these files, from 1."""
    texts: tuple[bytes, ...]
    """Concatenated lines of each column with line endings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """How a text column is encoded; sent to the worker processes."""

    name: str
    vocabulary: VocabularyFile
    most: int | None = None
    """Maximum number of ids without special tokens; longer texts are cut."""
    words: bool = False
    """Whether words are written such that each begins exactly one piece; see `source_text`."""
    raw: bool = False
    """Whether the text is stored beside the ids."""

    def encoded(
        self, vocabulary: Vocabulary, texts: Sequence[str], *, threads: int | None = None
    ) -> list[list[int]]:
        """Return the ids of texts, without special tokens."""
        if self.words:
            texts = [source_text(text.split()) for text in texts]
        sequences = vocabulary.encode_many(texts, threads=threads)
        return sequences if self.most is None else [ids[: self.most] for ids in sequences]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRecipe:
    """Settings for making shards; sent to the worker processes."""

    folder: Path
    """Output folder of the shards."""
    sides: tuple[Side, ...]
    """The text columns."""
    limits: FilterSettings | None
    """FilterSettings of the filter; None drops only empty rows."""
    spare: bool = False
    """Drop only empty rows, and count the others."""
    hashed: tuple[str, ...] = ()
    """Text columns of which a hash of each row is stored, to find duplicates."""
    mask: bool = False
    """Store which rows are kept, for columns that are not text."""
    escaped: bool = False
    """Whether each line is a JSON string, because texts may contain line feeds."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the text columns."""
        return tuple(side.name for side in self.sides)

    def path(self, number: int) -> Path:
        """Return the file of a shard."""
        return self.folder / f"{number:06d}.shard"


@dataclass(frozen=True, slots=True)
class Shard:
    """Content of a shard."""

    counts: dict[str, Any]
    """See `FilterCount.as_dict`."""
    ids: list[NDArray[Any]]
    """Concatenated ids of each text column."""
    lengths: list[NDArray[np.uint32]]
    hashes: NDArray[np.uint64]
    """Empty if duplicates are kept."""
    retained: NDArray[np.bool_]
    """Whether each row that was read is kept; empty unless it was stored."""
    raws: list[tuple[NDArray[np.uint8], NDArray[np.uint32]]]
    """Concatenated texts, and the bytes of each, of the columns that store them."""


def pieces(
    paths: Sequence[tuple[Path, ...]], lines: Sequence[int], done: Collection[int] = ()
) -> Iterator[ShardText]:
    """Yield the text of each shard.

    Args:
        paths: groups of parallel files.
        lines: number of lines of each group of files.
        done: numbers of the shards to skip.

    Raises:
        InputError: a file cannot be read, or its number of lines changed.
    """
    number = 0
    for group, count in zip(paths, lines, strict=True):
        sides = [raw_lines(path) for path in group]
        for start in range(0, count, SHARD):
            rows = min(SHARD, count - start)
            if number in done:
                for side in sides:
                    deque(islice(side, rows), maxlen=0)
            else:
                blobs = [list(islice(side, rows)) for side in sides]
                if {len(blob) for blob in blobs} != {rows}:
                    problem = "a file changed while it was being read"
                    raise InputError(problem, location=" and ".join(map(str, group)))
                yield ShardText(
                    number, rows, group, start + 1, tuple(b"".join(chunks) for chunks in blobs)
                )
            number += 1


def shards_in(lines: Sequence[int]) -> list[int]:
    """Return the number of rows in each shard, given the number of lines per file."""
    return [min(SHARD, count - start) for count in lines for start in range(0, count, SHARD)]


class Maker:
    """Tokenizes, filters and writes shards; each process has one instance."""

    def __init__(self, recipe: ShardRecipe) -> None:
        """Load the tokenizers.

        Raises:
            InputError: a tokenizer file is damaged.
        """
        self.recipe = recipe
        opened = {side.vocabulary: side.vocabulary.open() for side in recipe.sides}
        self._vocabularies = [opened[side.vocabulary] for side in recipe.sides]
        self._dtype = id_dtype(max(vocabulary.vocab_size for vocabulary in self._vocabularies))

    def _ids(self, side: Side, vocabulary: Vocabulary, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of texts; of a text that the filter drops in any case, only enough ids.

        SentencePiece joins white space and has no piece of `LONGEST_PIECE` characters, so the rest
        of a cut text still has more tokens than the limit.
        """
        recipe = self.recipe
        longest = recipe.limits.max_length if recipe.limits and not recipe.spare else None
        limits = [limit for limit in (longest, side.most) if limit is not None]
        if limits and not side.words and isinstance(vocabulary, Tokenizer):
            most = (max(limits) + 1) * LONGEST_PIECE
            texts = [t if len(t) <= most else " ".join(t.split())[:most] for t in texts]
        return side.encoded(vocabulary, texts, threads=1)

    def make(self, piece: ShardText) -> None:
        """Tokenize and filter one piece and write its shard.

        Raises:
            InputError: a line is not UTF-8.
        """
        count, recipe = FilterCount(), self.recipe
        letter = "H" if self._dtype.itemsize == 2 else "I"  # noqa: PLR2004 - bytes
        ids = [array(letter) for _ in recipe.sides]
        lengths = [array("I") for _ in recipe.sides]
        hashes, keep_flags, names = array("Q"), bytearray(), recipe.names
        hashed = [number for number, name in enumerate(names) if name in recipe.hashed]
        raws: dict[int, list[bytes]] = {n: [] for n, side in enumerate(recipe.sides) if side.raw}
        columns = [
            _lines(text, path, piece.first, escaped=recipe.escaped)
            for text, path in zip(piece.texts, piece.paths, strict=True)
        ]
        while texts := [list(islice(column, AT_ONCE)) for column in columns]:
            if not texts[0]:
                break
            id_columns = [
                self._ids(*arguments)
                for arguments in zip(recipe.sides, self._vocabularies, texts, strict=True)
            ]
            for number, row in enumerate(zip(*id_columns, strict=True)):
                sizes = [len(token_ids) for token_ids in row]
                keep = count.keep(sizes, recipe.limits, names, only_empty=recipe.spare)
                keep_flags.append(keep)
                if not keep:
                    continue
                for side, token_ids in enumerate(row):
                    ids[side].extend(token_ids)
                    lengths[side].append(sizes[side])
                for side, raw in raws.items():
                    raw.append(texts[side][number].encode())
                if hashed:
                    cut = [
                        texts[side][number]
                        for side in hashed
                        if sizes[side] == recipe.sides[side].most
                    ]
                    hashes.append(_hash([row[side] for side in hashed], cut))
        blobs = [b"".join(contents) for contents in raws.values()]
        content = [
            *(np.array(side, self._dtype).tobytes() for side in ids),
            *(np.array(side, LENGTH).tobytes() for side in lengths),
            np.array(hashes, HASH).tobytes(),
            bytes(keep_flags) if recipe.mask else b"",
            *blobs,
            *(
                np.array([len(content) for content in contents], LENGTH).tobytes()
                for contents in raws.values()
            ),
        ]
        header = {
            "dtype": self._dtype.str,
            "tokens": [len(side) for side in ids],
            "hashes": len(hashes),
            "mask": len(keep_flags) if recipe.mask else 0,
            "bytes": [len(blob) for blob in blobs],
            "counts": count.as_dict(),
            "digest": _digest(content),
        }
        path = recipe.path(piece.number)
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            file.write(json.dumps(header).encode() + b"\n")
            file.writelines(content)
        partial.replace(path)


def is_whole(path: Path) -> bool:
    """Return whether a shard exists and matches its digest."""
    try:
        with path.open("rb") as file:
            header = json.loads(file.readline())
            return bool(header["digest"] == _digest([file.read()]))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def header_of(path: Path) -> dict[str, Any]:
    """Return the header of a complete shard."""
    with path.open("rb") as file:
        header: dict[str, Any] = json.loads(file.readline())
    return header


def read_shard(path: Path, *, texts: bool = True) -> Shard:
    """Read a complete shard.

    Args:
        path: shard file.
        texts: whether to read the ids, the lengths and the stored texts, which are else empty.
    """
    with path.open("rb") as file:
        header = json.loads(file.readline())
        rows, tokens = header["counts"]["kept"], header["tokens"]
        dtype, sizes = np.dtype(header["dtype"]), header["bytes"]
        if not texts:
            skipped = sum(tokens) * dtype.itemsize + len(tokens) * rows * LENGTH.itemsize
            file.seek(skipped, io.SEEK_CUR)
            tokens, sizes = [], []

        def taken(count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
            return np.frombuffer(file.read(count * dtype.itemsize), dtype)

        ids = [taken(count, dtype) for count in tokens]
        lengths = [taken(rows, LENGTH) for _ in tokens]
        hashes = taken(header["hashes"], HASH)
        keep_mask = taken(header["mask"], np.dtype(np.bool_))
        blobs = [taken(count, np.dtype(np.uint8)) for count in sizes]
        raws = [(blob, taken(rows, LENGTH)) for blob in blobs]
    return Shard(header["counts"], ids, lengths, hashes, keep_mask, raws)


def _lines(blob: bytes, path: Path, first: int, *, escaped: bool) -> Iterator[str]:
    """Yield the lines of a piece as text."""
    for number, raw in enumerate(io.BytesIO(blob), start=first):
        yield json.loads(raw) if escaped else decode(raw, path, number)


def _hash(row: Sequence[Sequence[int]], cut: Sequence[str]) -> int:
    """Return a 64-bit hash; the collision probability among 36 million rows is 4e-5.

    Args:
        row: ids of each text.
        cut: the texts that may have been cut to these ids, which others may have as well.
    """
    every = chain.from_iterable(row)
    content = array("I", [*(len(ids) for ids in row[:-1]), *every]).tobytes()
    content += "".join(f"{text}\n" for text in cut).encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def _digest(content: Sequence[bytes]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in content:
        digest.update(part)
    return digest.hexdigest()
