"""Batches: rows padded to a tensor, and batches that another thread makes ahead of time."""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Item = TypeVar("Item")


def pad_rows(rows: Sequence[Sequence[int]], pad: int, eos: int) -> Tensor:
    """Append the end token to each sentence and pad; return ids [B, T].

    Args:
        rows: ids of each sentence, without the end token; not empty.
        pad: padding id.
        eos: end token id.
    """
    longest = max(map(len, rows)) + 1
    return torch.tensor([[*ids, eos, *([pad] * (longest - len(ids) - 1))] for ids in rows])


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
