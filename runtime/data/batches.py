"""Batches: pairs of like length, in an order that can be resumed.

Axes in this file:

    B  pairs in the batch    S  longest source + 1    T  longest target + 1

The + 1 is the end token, which corpora do not store.  Which pairs meet in
which batch is a pure function of (lengths, settings, seed, epoch), so the place
in the data is two numbers: the epoch, and how many of its batches are used.
It may differ between versions of numpy, whose generators make no promise.
"""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...specs.findings import InputError
from .mixture import rows_of_epoch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .settings import BatchSettings
    from .shards.corpus import Corpus

Rows = NDArray[np.int64]
"""Rows of a corpus."""
Item = TypeVar("Item")

_WIDE = 1 << 31
"""More than any length: two lengths as one number to sort by."""


@dataclass(frozen=True)
class Batch:
    """Some pairs, each sentence ended and then padded."""

    source: Tensor
    """Ids, B x S, int64."""
    target: Tensor
    """Ids, B x T, int64; no beginning token."""
    rows: Rows
    """Where the pairs are in the corpus; shape (B,)."""
    pad: int = 0
    """Id that fills short rows."""

    @cached_property
    def source_tokens(self) -> int:
        """Source tokens, end tokens counted, padding not."""
        return int((self.source != self.pad).sum())

    @cached_property
    def target_tokens(self) -> int:
        """Target tokens, end tokens counted, padding not."""
        return int((self.target != self.pad).sum())

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """Return the batch on another device; tokens are counted before it moves."""
        moved = replace(
            self,
            source=self.source.to(device, non_blocking=non_blocking),
            target=self.target.to(device, non_blocking=non_blocking),
        )
        # A count on an accelerator would wait for it.
        vars(moved).update(source_tokens=self.source_tokens, target_tokens=self.target_tokens)
        return moved


def plan_epoch(
    source_lengths: NDArray[Any],
    target_lengths: NDArray[Any],
    settings: BatchSettings,
    seed: int,
    epoch: int,
    rows: Rows | None = None,
) -> list[Rows]:
    """Return the batches of one epoch, as rows; every row exactly once unless told otherwise.

    Rows are shuffled, cut into pools, sorted within each pool by the longer
    side and then by the difference of the sides, cut into batches, and the
    batches shuffled.  The difference runs up and down in turn, so neighbors
    are alike across steps of the longer side too.

    Args:
        source_lengths: tokens without the end token; shape (pairs,).
        target_lengths: the same of the other side.
        settings: bounds of a batch.
        seed: which shuffle; the same for all epochs.
        epoch: counts from 0.
        rows: those of the epoch, some perhaps several times; each once when left out.

    Raises:
        InputError: a pair is longer than a batch may be; nothing is dropped here.
    """
    source, target = _ended(source_lengths), _ended(target_lengths)
    widest = np.maximum(source, target)
    pairs = len(widest)
    if pairs == 0:
        return []
    longest = int(widest.max())
    if longest > settings.tokens:
        msg = (
            f"pair {int(widest.argmax())} has {longest} tokens, and a batch only {settings.tokens}"
        )
        raise InputError(
            msg,
            help=f"set batch tokens to at least {longest},"
            f" or filter max_length to at most {settings.tokens - 1}",
        )
    # Seeds of numpy are not negative; those of torch may be.
    random = np.random.default_rng((seed % (1 << 64), epoch))
    order = random.permutation(pairs if rows is None else rows)
    per_batch = settings.tokens / float(widest.mean())
    if settings.max_sentences is not None:
        per_batch = min(per_batch, settings.max_sentences)
    size = max(1, round(settings.pool * per_batch))
    batches: list[Rows] = []
    for start in range(0, len(order), size):
        pool = order[start : start + size]
        pool = pool[_by_length(source[pool], target[pool])]
        batches += _cut(pool, widest[pool], settings)
    return [batches[index] for index in random.permutation(len(batches))]


def plan_in_order(
    source_lengths: NDArray[Any], target_lengths: NDArray[Any], settings: BatchSettings
) -> list[Rows]:
    """Return batches of all rows from short to long, without any chance.

    A pair longer than a batch may be is a batch of its own: text that is
    measured is never left out.
    """
    source, target = _ended(source_lengths), _ended(target_lengths)
    order = _by_length(source, target).astype(np.int64)
    return _cut(order, np.maximum(source, target)[order], settings)


def collate(corpus: Corpus, rows: Rows, pad: int, eos: int) -> Batch:
    """Read some pairs, and end and pad them.

    Args:
        corpus: where they are.
        rows: which; shape (B,), not empty.
        pad: id that fills short rows.
        eos: id that ends each sentence.
    """
    return Batch(
        source=torch.from_numpy(corpus.padded("source", rows, pad=pad, eos=eos)),
        target=torch.from_numpy(corpus.padded("target", rows, pad=pad, eos=eos)),
        rows=rows,
        pad=pad,
    )


def pad_rows(rows: Sequence[Sequence[int]], pad: int, eos: int) -> Tensor:
    """Return ids [B, T] of sentences that are in no corpus, each ended and then padded.

    Args:
        rows: ids of each sentence, without the end token; not empty.
        pad: id that fills short rows.
        eos: id that ends each sentence.
    """
    longest = max(map(len, rows)) + 1
    return torch.tensor([[*ids, eos, *([pad] * (longest - len(ids) - 1))] for ids in rows])


def stream(
    corpus: Corpus,
    settings: BatchSettings,
    seed: int,
    *,
    epoch: int = 0,
    position: int = 0,
    pad: int,
    eos: int,
) -> Iterator[tuple[int, int, Batch]]:
    """Yield (epoch, position, batch) without end, epoch after epoch.

    Called with a pair (epoch, position) that it yielded, it goes on with the
    very batch that followed.

    Args:
        corpus: what to read.
        settings: bounds of a batch.
        seed: which shuffle.
        epoch: where to begin; counts from 0.
        position: batches of that epoch that are already used.
        pad: id that fills short rows.
        eos: id that ends each sentence.

    Yields:
        The epoch, how many of its batches are used once this one is, the batch.

    Raises:
        InputError: as `stream_rows`.
    """
    for at, used, rows in stream_rows(corpus, settings, seed, epoch=epoch, position=position):
        yield at, used, collate(corpus, rows, pad, eos)


def stream_rows(
    corpus: Corpus, settings: BatchSettings, seed: int, *, epoch: int = 0, position: int = 0
) -> Iterator[tuple[int, int, Rows]]:
    """Yield what `stream` does, without reading the pairs: the rows of each batch.

    Args:
        corpus: its lengths decide.
        settings: bounds of a batch.
        seed: which shuffle.
        epoch: where to begin; counts from 0.
        position: batches of that epoch that are already used.

    Raises:
        InputError: the corpus is empty, a pair does not fit, or the epoch has
            fewer batches than `position`.
    """
    if len(corpus) == 0:
        msg = "no pairs to train on"
        raise InputError(
            msg,
            place=str(corpus.folder),
            help="look at the filter's report; loosen the filter or name other files",
        )
    while True:
        rows = rows_of_epoch(corpus.parts, seed, epoch) if corpus.parts else None
        plan = plan_epoch(corpus.source_lengths, corpus.target_lengths, settings, seed, epoch, rows)
        if position > len(plan):
            msg = f"cannot go on at batch {position}: epoch {epoch} has {len(plan)}"
            raise InputError(
                msg,
                place=str(corpus.folder),
                help="go on with the data and batch settings of the first run",
            )
        while position < len(plan):
            position += 1
            yield epoch, position, plan[position - 1]
        epoch, position = epoch + 1, 0


def in_order(corpus: Corpus, settings: BatchSettings, pad: int, eos: int) -> Iterator[Batch]:
    """Yield every pair once, from short to long, always the same."""
    for rows in plan_in_order(corpus.source_lengths, corpus.target_lengths, settings):
        yield collate(corpus, rows, pad, eos)


def prefetch(items: Iterator[Item], depth: int = 4) -> Iterator[Item]:
    """Yield the same items in the same order, made ahead by another thread.

    An exception of `items` is raised at its place in the order.  Closing the
    generator ends the thread.

    Args:
        items: used up by the thread; nobody else may.
        depth: items that may wait, at most.
    """
    waiting: queue.Queue[tuple[bool, Any]] = queue.Queue(maxsize=depth)
    stop = threading.Event()

    def put(made: tuple[bool, Any]) -> bool:
        while not stop.is_set():
            try:
                waiting.put(made, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            for item in items:
                if not put((True, item)):
                    return
            put((False, None))
        except BaseException as error:  # noqa: BLE001 - handed on, not swallowed
            put((False, error))

    thread = threading.Thread(target=work, name="prefetch", daemon=True)
    thread.start()
    try:
        while True:
            more, made = waiting.get()
            if more:
                yield made
            elif made is not None:
                raise made
            else:
                return
    finally:
        stop.set()
        with suppress(queue.Empty):
            waiting.get_nowait()  # a thread that waits for room goes on, and sees it
        thread.join(timeout=1.0)  # at the interpreter's end the thread may be frozen


def _ended(lengths: NDArray[Any]) -> NDArray[np.int64]:
    """Return lengths with the end token counted."""
    return np.asarray(lengths).astype(np.int64) + 1


def _by_length(source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the order by the longer side, then by the difference, up and down in turn."""
    widest, difference = np.maximum(source, target), source - target
    ties = np.where(widest % 2 == 0, difference, -difference)
    return np.argsort(widest * _WIDE + ties, kind="stable")


def _cut(rows: Rows, widest: NDArray[np.int64], settings: BatchSettings) -> list[Rows]:
    """Cut rows into batches, each as long as its bounds allow, in the given order.

    Args:
        rows: in the order they are to be cut.
        widest: the longer side of each, end token counted; same shape, never falling.
        settings: bounds; a row that alone exceeds them is a batch of its own.
    """
    most = len(rows) if settings.max_sentences is None else settings.max_sentences
    batches, start = [], 0
    while start < len(rows):
        # The first row, the shortest, bounds how many can fit; the last one decides.
        room = max(1, min(most, settings.tokens // int(widest[start])))
        longest = widest[start : start + room]
        sizes = longest * np.arange(1, len(longest) + 1)
        fits = max(1, int(np.count_nonzero(sizes <= settings.tokens)))
        batches.append(rows[start : start + fits])
        start += fits
    return batches
