"""Batches of sentence pairs of similar length, in a resumable order.

Axes in this file:

    B  pairs in the batch    S  longest source + 1    T  longest target + 1

The + 1 is the end token, which corpora do not store.  The assignment of pairs to
batches is a pure function of (lengths, settings, seed, epoch), so the position in
the data is two numbers: the epoch, and the number of its batches already used.
The assignment may differ between versions of numpy, which does not guarantee that
its random generators stay the same.
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

from .planning import Rows, plan_rows, plan_rows_in_order, stream_plans

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .settings import BatchSettings
    from .shards.corpus import Corpus

Item = TypeVar("Item")


@dataclass(frozen=True)
class Batch:
    """Sentence pairs; each sentence has an end token and is padded."""

    source: Tensor
    """Ids, B x S, int64."""
    target: Tensor
    """Ids, B x T, int64; without a beginning token."""
    rows: Rows
    """Rows of the pairs in the corpus; shape (B,)."""
    pad: int = 0
    """Padding id."""

    @cached_property
    def source_tokens(self) -> int:
        """Number of source tokens, including end tokens and excluding padding."""
        return int((self.source != self.pad).sum())

    @cached_property
    def target_tokens(self) -> int:
        """Number of target tokens, including end tokens and excluding padding."""
        return int((self.target != self.pad).sum())

    @cached_property
    def shifted_target_tokens(self) -> int:
        """Number of non-padding tokens of the target shifted right, as a decoder reads it.

        The begin token replaces the last position, which holds padding in all rows but the
        longest: these rows keep their end token.
        """
        lengths_B = (self.target != self.pad).sum(1)
        return int((lengths_B + 1).clamp(max=self.target.size(1)).sum())

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """Return the batch on another device; tokens are counted before the move."""
        moved = replace(
            self,
            source=self.source.to(device, non_blocking=non_blocking),
            target=self.target.to(device, non_blocking=non_blocking),
        )
        # Counting on an accelerator would synchronize with it.
        vars(moved).update(
            source_tokens=self.source_tokens,
            target_tokens=self.target_tokens,
            shifted_target_tokens=self.shifted_target_tokens,
        )
        return moved


def plan_epoch(
    source_lengths: NDArray[Any],
    target_lengths: NDArray[Any],
    settings: BatchSettings,
    seed: int,
    epoch: int,
    rows: Rows | None = None,
) -> list[Rows]:
    """Return the batches of one epoch, each an array of rows; see `plan_rows`.

    Args:
        source_lengths: source tokens without the end token; shape (pairs,).
        target_lengths: target tokens without the end token; shape (pairs,).
        settings: limits of a batch.
        seed: seed of the shuffle; the same for all epochs.
        epoch: counts from 0.
        rows: rows of the epoch, with repetitions where pairs are oversampled; by
            default every row once.

    Raises:
        InputError: a pair is longer than the token limit of a batch; no pair is dropped.
    """
    lengths = _ended(source_lengths), _ended(target_lengths)
    return plan_rows(lengths, settings, seed, epoch, count=len(source_lengths), rows=rows)


def plan_in_order(
    source_lengths: NDArray[Any], target_lengths: NDArray[Any], settings: BatchSettings
) -> list[Rows]:
    """Return batches of all rows from short to long, deterministically.

    A pair that exceeds the token limit becomes a batch of its own, because
    evaluation must not drop text.
    """
    lengths = _ended(source_lengths), _ended(target_lengths)
    return plan_rows_in_order(lengths, settings, count=len(source_lengths))


def collate(corpus: Corpus, rows: Rows, pad: int, eos: int) -> Batch:
    """Read pairs, append the end token to each sentence, and pad.

    Args:
        corpus: corpus to read from.
        rows: rows of the pairs; shape (B,), not empty.
        pad: padding id.
        eos: end token id.
    """
    return Batch(
        source=torch.from_numpy(corpus.padded("source", rows, pad=pad, eos=eos)),
        target=torch.from_numpy(corpus.padded("target", rows, pad=pad, eos=eos)),
        rows=rows,
        pad=pad,
    )


def pad_rows(rows: Sequence[Sequence[int]], pad: int, eos: int) -> Tensor:
    """Append the end token to each sentence and pad; return ids [B, T].

    Args:
        rows: ids of each sentence, without the end token; not empty.
        pad: padding id.
        eos: end token id.
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
    """Yield (epoch, position, batch) indefinitely, epoch after epoch.

    When called with an (epoch, position) that it yielded before, it resumes with the
    batch that followed.

    Args:
        corpus: corpus to read.
        settings: limits of a batch.
        seed: seed of the shuffle.
        epoch: first epoch; counts from 0.
        position: number of batches of that epoch that are already used.
        pad: padding id.
        eos: end token id.

    Yields:
        The epoch, the number of its batches used including this one, and the batch.

    Raises:
        InputError: as `stream_rows`.
    """
    for at, used, rows in stream_rows(corpus, settings, seed, epoch=epoch, position=position):
        yield at, used, collate(corpus, rows, pad, eos)


def stream_rows(
    corpus: Corpus, settings: BatchSettings, seed: int, *, epoch: int = 0, position: int = 0
) -> Iterator[tuple[int, int, Rows]]:
    """Yield (epoch, position, rows) as `stream` does, without reading the pairs.

    Args:
        corpus: corpus whose lengths determine the batches.
        settings: limits of a batch.
        seed: seed of the shuffle.
        epoch: first epoch; counts from 0.
        position: number of batches of that epoch that are already used.

    Raises:
        InputError: the corpus is empty, a pair does not fit, or the epoch has
            fewer batches than `position`.
    """
    return stream_plans(corpus, settings, seed, epoch=epoch, position=position)


def in_order(corpus: Corpus, settings: BatchSettings, pad: int, eos: int) -> Iterator[Batch]:
    """Yield every pair once, from short to long, in a fixed order."""
    for rows in plan_in_order(corpus.source_lengths, corpus.target_lengths, settings):
        yield collate(corpus, rows, pad, eos)


def prefetch(items: Iterator[Item], depth: int = 4) -> Iterator[Item]:
    """Yield the same items in the same order, produced ahead of time by another thread.

    An exception raised by `items` is raised again at the same position.  Closing the
    generator stops the thread.

    Args:
        items: iterator to consume; only the thread may advance it.
        depth: maximum number of items in the queue.
    """
    waiting: queue.Queue[tuple[bool, Any]] = queue.Queue(maxsize=depth)
    stop = threading.Event()

    def put(entry: tuple[bool, Any]) -> bool:
        while not stop.is_set():
            try:
                waiting.put(entry, timeout=0.1)
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
        except BaseException as error:  # noqa: BLE001 - raised again by the consumer
            put((False, error))

    thread = threading.Thread(target=work, name="prefetch", daemon=True)
    thread.start()
    try:
        while True:
            is_item, item = waiting.get()
            if is_item:
                yield item
            elif item is not None:
                raise item
            else:
                return
    finally:
        stop.set()
        with suppress(queue.Empty):
            waiting.get_nowait()  # unblocks a thread that waits for a free slot
        thread.join(timeout=1.0)  # the thread may be frozen while the interpreter exits


def _ended(lengths: NDArray[Any]) -> NDArray[np.int64]:
    """Return lengths including the end token."""
    return np.asarray(lengths).astype(np.int64) + 1
