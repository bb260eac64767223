"""Merging of shards, in order, into one corpus, in bounded memory."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from ..mixture import Part
from .corpus import CorpusWriter
from .filters import FilterCount
from .shards import read_shard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

CAPACITY = 1 << 22
"""Hashes sorted at a time: 36 million pairs take nine rounds."""


def gather(
    shards: Sequence[Path],
    folder: Path,
    *,
    vocab_size: int,
    tokenizers: Mapping[str, str],
    unique: bool,
    files: Sequence[tuple[int, float]] = (),
    tell: Callable[[int], None],
) -> FilterCount:
    """Merge shards into a corpus; its header has the filter's counts.

    Args:
        shards: shard files, in order.
        folder: output folder.
        vocab_size: see `CorpusWriter`.
        tokenizers: see `CorpusWriter`.
        unique: whether to keep only the first of equal pairs.
        files: number of shards and weight of each text file, if files have weights.
        tell: progress callback, called with the number of text pairs done.
    """
    count = FilterCount()
    mask = first_of_each(shards) if unique else None
    start, written = 0, list[int]()
    with CorpusWriter(folder, vocab_size=vocab_size, tokenizers=tokenizers) as writer:
        for path in shards:
            shard = read_shard(path)
            count.add(shard.counts)
            pairs = len(shard.lengths[0])
            kept = None if mask is None else mask[start : start + pairs]
            for side in (0, 1):
                writer.extend(side, *_chosen(shard.ids[side], shard.lengths[side], kept))
            written.append(pairs if kept is None else int(kept.sum()))
            if kept is not None:
                count.leave_out("duplicate", pairs - written[-1])
            start += pairs
            tell(count.read)
        writer.report = count.as_dict()
        each = iter(written)
        writer.parts = [Part(sum(islice(each, shards)), weight) for shards, weight in files]
    return count


def first_of_each(shards: Sequence[Path]) -> NDArray[np.bool_]:
    """Return a mask of the pairs that are the first with their hash, over all shards.

    Hashes are sorted in parts, one residue class at a time, so memory is bounded.
    """
    sizes = [len(read_shard(path, only_hashes=True).hashes) for path in shards]
    mask = np.zeros(sum(sizes), dtype=np.bool_)
    parts = max(1, -(-len(mask) // CAPACITY))
    for part in range(parts):
        found, places, start = [], [], 0
        for path, size in zip(shards, sizes, strict=True):
            hashes = read_shard(path, only_hashes=True).hashes
            mine = np.flatnonzero(hashes % parts == part)
            found.append(hashes[mine])
            places.append(mine + start)
            start += size
        _, first = np.unique(np.concatenate(found), return_index=True)
        mask[np.concatenate(places)[first]] = True
    return mask


def _chosen(
    ids: NDArray[Any], lengths: NDArray[np.uint32], kept: NDArray[np.bool_] | None
) -> tuple[NDArray[Any], NDArray[np.uint32]]:
    """Return ids and lengths of the kept sentences."""
    if kept is None or kept.all():
        return ids, lengths
    return ids[np.repeat(kept, lengths)], lengths[kept]
