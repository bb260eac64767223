"""Shards: independently tokenized parts of a text, for parallel and resumable preparation.

A shard is one file: a line of JSON (dtype, tokens of each side, counts of the filter,
digest of the rest) followed by these little-endian arrays:

    ids of the source sentences, ids of the target sentences    dtype of the corpus
    tokens of each source sentence, of each target sentence     uint32
    hash of each pair, if duplicates are dropped                uint64

The assignment of pairs to shards depends only on the files, so the result is the same for
any number of processes.  `workers.py` runs the processes, `merge_shards.py` merges the
shards into a corpus.
"""

from __future__ import annotations

import hashlib
import io
import json
from array import array
from collections import deque
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ....specs.findings import InputError
from ..symbols import SYMBOLS, Vocabulary, open_symbols
from ..text_files import decode, raw_lines
from ..tokenizer import Tokenizer
from .corpus import id_dtype
from .filters import FilterCount

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from numpy.typing import NDArray

    from ..settings import FilterSettings

SHARD = 50_000
"""Maximum pairs of text in a shard."""
LONGEST_PIECE = 1_000
"""More characters than any piece of a tokenizer has."""
AT_ONCE = 5_000
"""Pairs tokenized at a time: Python lists of ids take much memory."""
LENGTH, HASH = np.dtype("<u4"), np.dtype("<u8")


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of one shard."""

    number: int
    """Number of the shard, from 0."""
    pairs: int
    paths: tuple[Path, Path]
    """Source and target file of the text."""
    first: int
    """Number of the first line in these files, from 1."""
    source: bytes
    """Concatenated source lines with line endings."""
    target: bytes
    """Concatenated target lines with line endings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Settings for making shards; sent to the worker processes."""

    folder: Path
    """Output folder of the shards."""
    tokenizers: tuple[Path, Path]
    """Tokenizer files of source and target; may be the same."""
    limits: FilterSettings
    spare: bool = False
    """Drop only empty pairs."""
    hashes: bool = False
    """Store a hash of each pair, to find duplicates."""

    def path(self, number: int) -> Path:
        """Return the file of a shard."""
        return self.folder / f"{number:06d}.shard"


@dataclass(frozen=True, slots=True)
class Shard:
    """Content of a shard."""

    counts: dict[str, Any]
    """See `FilterCount.as_dict`."""
    ids: tuple[NDArray[Any], NDArray[Any]]
    lengths: tuple[NDArray[np.uint32], NDArray[np.uint32]]
    hashes: NDArray[np.uint64]
    """Empty if duplicates are kept."""


def pieces(
    paths: Sequence[tuple[Path, Path]], lines: Sequence[int], done: Collection[int] = ()
) -> Iterator[Piece]:
    """Yield the text of each shard.

    Args:
        paths: parallel files.
        lines: number of lines of each pair of files.
        done: numbers of the shards to skip.

    Raises:
        InputError: a file cannot be read, or its number of lines changed.
    """
    number = 0
    for both, count in zip(paths, lines, strict=True):
        sides = [raw_lines(path) for path in both]
        for start in range(0, count, SHARD):
            pairs = min(SHARD, count - start)
            if number in done:
                for side in sides:
                    deque(islice(side, pairs), maxlen=0)
            else:
                blobs = [list(islice(side, pairs)) for side in sides]
                if {len(blob) for blob in blobs} != {pairs}:
                    problem = "a file changed while it was being read"
                    raise InputError(problem, place=f"{both[0]} and {both[1]}")
                source, target = (b"".join(blob) for blob in blobs)
                yield Piece(number, pairs, both, start + 1, source, target)
            number += 1


def shards_in(lines: Sequence[int]) -> list[int]:
    """Return the number of text pairs in each shard, given the number of lines per file."""
    return [min(SHARD, count - start) for count in lines for start in range(0, count, SHARD)]


class Maker:
    """Tokenizes, filters and writes shards; each process has one instance."""

    def __init__(self, recipe: Recipe) -> None:
        """Load the tokenizers.

        Raises:
            InputError: a model file is damaged.
        """
        self.recipe = recipe
        source, target = recipe.tokenizers
        self._source = Tokenizer.open(source)
        self._target = (
            open_symbols(target, self._source) if target.name == SYMBOLS else Tokenizer.open(target)
        )
        self._dtype = id_dtype(max(self._source.vocab_size, self._target.vocab_size))

    def _ids(self, vocabulary: Vocabulary, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of texts; of a text that the filter drops in any case, only enough ids.

        SentencePiece joins white space and has no piece of `LONGEST_PIECE` characters, so the rest
        of a cut text still has more tokens than the limit.
        """
        most = (self.recipe.limits.max_length + 1) * LONGEST_PIECE
        if not self.recipe.spare and isinstance(vocabulary, Tokenizer):
            texts = [t if len(t) <= most else " ".join(t.split())[:most] for t in texts]
        return vocabulary.encode_many(texts, threads=1)

    def make(self, piece: Piece) -> None:
        """Tokenize and filter one piece and write its shard.

        Raises:
            InputError: a line is not UTF-8.
        """
        count, recipe = FilterCount(), self.recipe
        letter = "H" if self._dtype.itemsize == 2 else "I"  # noqa: PLR2004 - bytes
        ids, lengths = (array(letter), array(letter)), (array("I"), array("I"))
        hashes = array("Q")
        left = _lines(piece.source, piece.paths[0], piece.first)
        right = _lines(piece.target, piece.paths[1], piece.first)
        while sources := list(islice(left, AT_ONCE)):
            targets = list(islice(right, AT_ONCE))
            for source, target in zip(
                self._ids(self._source, sources),
                self._ids(self._target, targets),
                strict=True,
            ):
                sizes = len(source), len(target)
                if not count.keep(*sizes, recipe.limits, only_empty=recipe.spare):
                    continue
                for side, pair in enumerate((source, target)):
                    ids[side].extend(pair)
                    lengths[side].append(sizes[side])
                if recipe.hashes:
                    hashes.append(_hash(source, target))
        content = [
            *(np.array(side, self._dtype).tobytes() for side in ids),
            *(np.array(side, LENGTH).tobytes() for side in lengths),
            np.array(hashes, HASH).tobytes(),
        ]
        header = {
            "dtype": self._dtype.str,
            "tokens": [len(side) for side in ids],
            "hashes": len(hashes),
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


def read_shard(path: Path, *, only_hashes: bool = False) -> Shard:
    """Read a complete shard.

    Args:
        path: shard file.
        only_hashes: skip the ids and lengths, which are then empty.
    """
    with path.open("rb") as file:
        header = json.loads(file.readline())
        pairs, tokens = header["counts"]["kept"], header["tokens"]
        dtype = np.dtype(header["dtype"])
        if only_hashes:
            file.seek(sum(tokens) * dtype.itemsize + 2 * pairs * LENGTH.itemsize, io.SEEK_CUR)
            pairs, tokens = 0, (0, 0)
        ids = [np.frombuffer(file.read(n * dtype.itemsize), dtype) for n in tokens]
        lengths = [np.frombuffer(file.read(pairs * LENGTH.itemsize), LENGTH) for _ in tokens]
        hashes = np.frombuffer(file.read(header["hashes"] * HASH.itemsize), HASH)
    return Shard(header["counts"], (ids[0], ids[1]), (lengths[0], lengths[1]), hashes)


def _lines(blob: bytes, path: Path, first: int) -> Iterator[str]:
    """Yield the lines of a piece as text."""
    for number, raw in enumerate(io.BytesIO(blob), start=first):
        yield decode(raw, path, number)


def _hash(source: Sequence[int], target: Sequence[int]) -> int:
    """Return a 64-bit hash; the collision probability among 36 million pairs is 4e-5."""
    content = array("I", [len(source), *source, *target]).tobytes()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def _digest(content: Sequence[bytes]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in content:
        digest.update(part)
    return digest.hexdigest()
