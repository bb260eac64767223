"""Merging of shards, in order, into one corpus, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ....specs.findings import InputError
from .arrays import ArrayField
from .blocks import Blocks
from .corpus import CorpusWriter
from .filters import FilterCount
from .shards import read_shard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from .arrays import ArrayWriter
    from .blocks import BlockSettings

CAPACITY = 1 << 22
"""Hashes sorted at a time: 36 million pairs take nine rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLayout:
    """What the merged corpus contains."""

    columns: tuple[str, ...]
    """Names of the text columns."""
    vocab_size: int
    """See `CorpusWriter`."""
    tokenizers: Mapping[str, str]
    """See `CorpusWriter`."""
    unique: bool = False
    """Whether to keep only one of the rows with equal hashes."""
    raws: tuple[str, ...] = ()
    """Names of the arrays of the stored texts, in the order of the shards."""
    block: BlockSettings | None = None
    """How to cut the only text column into blocks; None keeps its rows."""
    fields: Mapping[str, ArrayField] = field(default_factory=dict)
    """Other arrays, which `gather` leaves to its caller."""


def gather(
    shards: Sequence[Path],
    folder: Path,
    layout: ShardLayout,
    *,
    sources: Sequence[tuple[str, int]] = (),
    scores: NDArray[np.float64] | None = None,
    tell: Callable[[int], None],
    others: Callable[[CorpusWriter, Iterator[bool]], None] | None = None,
) -> FilterCount:
    """Merge shards into a corpus; its header has the filter's counts.

    Args:
        shards: shard files, in order.
        folder: output folder.
        layout: columns of the corpus.
        sources: name and number of shards of each source, if they have names.
        scores: number of each row that was read; of rows with equal hashes, one with the largest
            is kept. None keeps the first.
        tell: progress callback, called with the number of rows done.
        others: writes the other arrays, given whether each row that was read is in the corpus.
    """
    count = FilterCount()
    mask = None
    if layout.unique:
        retained = None if scores is None else _retained(shards, scores)
        mask = best_of_each(shards, retained)
    raws = dict.fromkeys(layout.raws, ArrayField("|u1", ragged=True))
    with CorpusWriter(
        folder,
        vocab_size=layout.vocab_size,
        tokenizers=layout.tokenizers,
        columns=layout.columns,
        fields={**raws, **layout.fields},
    ) as writer:
        columns = [writer.arrays[name] for name in layout.columns]
        targets: list[ArrayWriter | Blocks] = [*columns]
        if layout.block is not None:
            targets = [Blocks(columns[0], layout.block)]
        ends = {*accumulate(number for _, number in sources)}
        start, rows, kept_rows = 0, [0], list["NDArray[np.bool_]"]()
        for number, path in enumerate(shards, 1):
            shard = read_shard(path)
            count.add(shard.counts)
            size = len(shard.lengths[0])
            keep_mask = None if mask is None else mask[start : start + size]
            for target, ids, lengths in zip(targets, shard.ids, shard.lengths, strict=True):
                target.extend(*_chosen(ids, lengths, keep_mask))
            for name, (content, lengths) in zip(layout.raws, shard.raws, strict=True):
                writer.arrays[name].extend(*_chosen(content, lengths, keep_mask))
            if keep_mask is not None:
                count.leave_out("duplicate", size - int(keep_mask.sum()))
            if others is not None:
                kept_rows.append(_read_rows(shard.retained, keep_mask))
            if layout.block is not None and (number in ends or number == len(shards)):
                cast("Blocks", targets[0]).flush()
            rows.append(columns[0].rows)
            start += size
            tell(count.read)
        writer.report = count.as_dict()
        begins = [0, *accumulate(number for _, number in sources)]
        writer.sources = {
            name: rows[last] - rows[first]
            for (first, last), (name, _) in zip(pairwise(begins), sources, strict=True)
        }
        if others is not None:
            others(writer, (bool(flag) for flags in kept_rows for flag in flags))
    return count


def _read_rows(read: NDArray[np.bool_], keep_mask: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
    """Return whether each row that was read is in the corpus."""
    if keep_mask is None:
        return read.copy()
    every = np.zeros(len(read), dtype=np.bool_)
    every[np.flatnonzero(read)] = keep_mask
    return every


def _retained(shards: Sequence[Path], scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the scores of the rows that shards retain.

    Raises:
        InputError: there are not as many scores as rows.
    """
    flags = np.concatenate([read_shard(path).retained for path in shards])
    if len(flags) != len(scores):
        raise InputError("a file changed while it was being read", location="train")
    retained: NDArray[np.float64] = scores[flags]
    return retained


def best_of_each(
    shards: Sequence[Path], scores: NDArray[np.float64] | None = None
) -> NDArray[np.bool_]:
    """Return a mask of the first rows with the best score of their hash, over all shards.

    Hashes are sorted in parts, one residue class at a time, so memory is bounded.

    Args:
        shards: shard files, in order.
        scores: score of each row of the shards; None for equal scores.
    """
    sizes = [len(read_shard(path, only_hashes=True).hashes) for path in shards]
    mask = np.zeros(sum(sizes), dtype=np.bool_)
    parts = -(-len(mask) // CAPACITY)
    for part in range(parts):
        part_hashes, places, start = [], [], 0
        for path, size in zip(shards, sizes, strict=True):
            hashes = read_shard(path, only_hashes=True).hashes
            mine = np.flatnonzero(hashes % parts == part)
            part_hashes.append(hashes[mine])
            places.append(mine + start)
            start += size
        hashes, rows = np.concatenate(part_hashes), np.concatenate(places)
        if scores is not None:  # the best ones first; lexsort is stable
            order = np.lexsort((-scores[rows],))
            hashes, rows = hashes[order], rows[order]
        _, first = np.unique(hashes, return_index=True)
        mask[rows[first]] = True
    return mask


def _chosen(
    ids: NDArray[Any], lengths: NDArray[np.uint32], keep_mask: NDArray[np.bool_] | None
) -> tuple[NDArray[Any], NDArray[np.uint32]]:
    """Return items and lengths of the kept rows."""
    if keep_mask is None or keep_mask.all():
        return ids, lengths
    return ids[np.repeat(keep_mask, lengths)], lengths[keep_mask]
