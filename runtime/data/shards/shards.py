"""Shards: text becomes ids in pieces, so that processes share the work and a kill costs little.

A shard is one file: a line of JSON (pairs, tokens of each side, counts of the filter,
digest of the rest) and then, one after another, little-endian,

    ids of the source sentences, ids of the target sentences    as the corpus has them
    tokens of each source sentence, of each target sentence     uint32
    hash of each pair, where duplicates are to be found         uint64

Which pairs are in which shard follows from the files alone, so what comes out is the same
for any number of processes.  Not here: who makes them (`workers.py`), how they become a
corpus (`gather.py`).
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
from ..symbols import SYMBOLS, open_symbols
from ..text_files import decode, raw_lines
from ..tokenizer import Tokenizer
from .corpus import id_dtype
from .filters import FilterCount

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from numpy.typing import NDArray

    from ..settings import FilterSettings

SHARD = 50_000
"""Pairs of text in a shard, at most."""
AT_ONCE = 5_000
"""Pairs tokenized at a time: ids as Python has them take much memory."""
LENGTH, HASH = np.dtype("<u4"), np.dtype("<u8")


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of one shard."""

    number: int
    """Of the shard, from 0."""
    pairs: int
    paths: tuple[Path, Path]
    """Files it is from."""
    first: int
    """Line of those files with which it begins, from 1."""
    source: bytes
    """Lines with their endings, one after another."""
    target: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How text becomes shards; goes to other processes."""

    folder: Path
    """Where shards are written."""
    tokenizers: tuple[Path, Path]
    """Files of source and target; may be one."""
    limits: FilterSettings
    spare: bool = False
    """Keep all but empty pairs."""
    hashes: bool = False
    """Whether duplicates are to be found."""

    def path(self, number: int) -> Path:
        """Return the file of a shard."""
        return self.folder / f"{number:06d}.shard"


@dataclass(frozen=True, slots=True)
class Shard:
    """What a shard holds."""

    counts: dict[str, Any]
    """See `FilterCount.as_dict`."""
    ids: tuple[NDArray[Any], NDArray[Any]]
    lengths: tuple[NDArray[np.uint32], NDArray[np.uint32]]
    hashes: NDArray[np.uint64]
    """Empty where duplicates are kept."""


def pieces(
    paths: Sequence[tuple[Path, Path]], lines: Sequence[int], done: Collection[int] = ()
) -> Iterator[Piece]:
    """Yield the text of each shard.

    Args:
        paths: parallel files.
        lines: how many lines each pair of them has.
        done: shards to pass over.

    Raises:
        InputError: a file cannot be read, or has other lines than it had.
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
                    problem = "a file changed while it was read"
                    raise InputError(problem, place=f"{both[0]} and {both[1]}")
                source, target = (b"".join(blob) for blob in blobs)
                yield Piece(number, pairs, both, start + 1, source, target)
            number += 1


def shards_in(lines: Sequence[int]) -> list[int]:
    """Return the pairs of text in each shard of files that have so many lines."""
    return [min(SHARD, count - start) for count in lines for start in range(0, count, SHARD)]


class Maker:
    """Makes shards; one in each process."""

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

    def make(self, piece: Piece) -> None:
        """Tokenize and filter one piece, and write its shard.

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
                self._source.encode_many(sources, threads=1),
                self._target.encode_many(targets, threads=1),
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
    """Say whether a shard is there with the very bytes that were written."""
    try:
        with path.open("rb") as file:
            header = json.loads(file.readline())
            return bool(header["digest"] == _digest([file.read()]))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def read_shard(path: Path, *, only_hashes: bool = False) -> Shard:
    """Read a shard that is whole.

    Args:
        path: its file.
        only_hashes: leave ids and lengths empty.
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
    """Return 64 bits that tell pairs apart: of 36 million, two meet with chance 4e-5."""
    told = array("I", [len(source), *source, *target]).tobytes()
    return int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "little")


def _digest(content: Sequence[bytes]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in content:
        digest.update(part)
    return digest.hexdigest()
