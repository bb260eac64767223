"""Merging of shards, in order, into one corpus, in bounded memory."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, islice, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ....specs.findings import InputError
from .arrays import ArrayField
from .blocks import Blocks
from .corpus import CorpusWriter
from .filters import FilterCount
from .shards import header_of, read_shard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from .arrays import ArrayWriter
    from .blocks import BlockSettings

CAPACITY = 1 << 22
"""Hashes sorted at a time, if that takes at most `CLASSES` files."""
CLASSES = 512
"""Maximum number of files that are open."""
_ENTRY = np.dtype([("hash", "<u8"), ("row", "<i8")])
_SCORED = np.dtype([*_ENTRY.descr, ("score", "<f8")])


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
    scores: Iterator[float] | None = None,
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
    raws = dict.fromkeys(layout.raws, ArrayField("|u1", ragged=True))
    with ExitStack() as files:
        mask = files.enter_context(best_of_each(shards, scores)) if layout.unique else None
        writer = files.enter_context(
            CorpusWriter(
                folder,
                vocab_size=layout.vocab_size,
                tokenizers=layout.tokenizers,
                columns=layout.columns,
                fields={**raws, **layout.fields},
            )
        )
        columns = [writer.arrays[name] for name in layout.columns]
        targets: list[ArrayWriter | Blocks] = [*columns]
        if layout.block is not None:
            targets = [Blocks(columns[0], layout.block)]
        ends = {*accumulate(number for _, number in sources)}
        start, rows = 0, [0]
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
            others(writer, _rows_read(shards, mask))
    return count


def _rows_read(shards: Sequence[Path], mask: NDArray[np.bool_] | None) -> Iterator[bool]:
    """Yield whether each row that was read is in the corpus."""
    start = 0
    for path in shards:
        flags = read_shard(path, texts=False).retained.copy()
        retained = np.flatnonzero(flags)
        if mask is not None:
            flags[retained] = mask[start : start + len(retained)]
        start += len(retained)
        yield from flags.tolist()


@contextmanager
def best_of_each(
    shards: Sequence[Path], scores: Iterator[float] | None = None
) -> Iterator[NDArray[np.bool_]]:
    """Yield a mask of the first rows with the best score of their hash, over all shards.

    Hashes are distributed over files next to the shards, one for each residue class, and each file
    is sorted alone; the mask is a mapped file.  So memory is bounded, and hashes are read twice,
    however many rows there are.

    Args:
        shards: shard files, in order; at least one.
        scores: score of each row that was read; None for equal scores.

    Raises:
        InputError: there are not as many scores as rows.
    """
    count = sum(header_of(path)["hashes"] for path in shards)
    classes = min(CLASSES, max(1, -(-count // CAPACITY)))
    kind = _ENTRY if scores is None else _SCORED
    with TemporaryDirectory(dir=shards[0].parent) as name, ExitStack() as files:
        paths = [Path(name) / str(number) for number in range(classes)]
        targets = [files.enter_context(path.open("wb")) for path in paths]
        start = 0
        for path in shards:
            shard = read_shard(path, texts=False)
            entries = np.empty(len(shard.hashes), kind)
            entries["hash"], entries["row"] = shard.hashes, np.arange(len(entries)) + start
            if scores is not None:
                entries["score"] = _next_scores(scores, len(shard.retained))[shard.retained]
            residues = shard.hashes % np.uint64(classes)
            entries = entries[np.argsort(residues, kind="stable")]
            ends = np.cumsum(np.bincount(residues.astype(np.int64), minlength=classes))
            for target, part in zip(targets, np.split(entries, ends[:-1]), strict=True):
                target.write(part.tobytes())
            start += len(entries)
        if scores is not None and next(scores, None) is not None:
            raise _changed()
        files.close()
        mask = _blank_mask(Path(name) / "mask", count)
        for path in paths:
            entries = np.fromfile(path, kind)
            if scores is not None:  # the best ones first
                entries = entries[np.argsort(-entries["score"], kind="stable")]
            _, first = np.unique(entries["hash"], return_index=True)
            mask[entries["row"][first]] = True
            path.unlink()
        yield mask


def _next_scores(scores: Iterator[float], count: int) -> NDArray[np.float64]:
    """Return the scores of the rows of a shard.

    Raises:
        InputError: there are fewer.
    """
    numbers = np.fromiter(islice(scores, count), dtype=np.float64)
    if len(numbers) < count:
        raise _changed()
    return numbers


def _changed() -> InputError:
    return InputError("a file changed while it was being read", location="train")


def _blank_mask(path: Path, count: int) -> NDArray[np.bool_]:
    """Map a file of zeros, all of which are written, since a full disk would end the process."""
    with path.open("wb") as file:
        for start in range(0, count, CAPACITY):
            file.write(bytes(min(CAPACITY, count - start)))
    if not count:  # an empty file cannot be mapped
        return np.zeros(0, np.bool_)
    return np.memmap(path, dtype=np.bool_, mode="r+").view(np.ndarray)


def _chosen(
    ids: NDArray[Any], lengths: NDArray[np.uint32], keep_mask: NDArray[np.bool_] | None
) -> tuple[NDArray[Any], NDArray[np.uint32]]:
    """Return items and lengths of the kept rows."""
    if keep_mask is None or keep_mask.all():
        return ids, lengths
    return ids[np.repeat(keep_mask, lengths)], lengths[keep_mask]
