"""Items that arrive over time, such as lines from a pipe: those that came wait for no others.

Another thread reads them, because no other way to ask whether a read would block works for pipes
and terminals on every system.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from queue import Empty, Queue
from threading import Thread
from typing import TypeVar

T = TypeVar("T")

PAUSE = 0.05
"""Seconds without a new item after which those that were read are taken."""
PATIENCE = 0.25
"""Seconds after which they are taken although items go on arriving one by one."""
_WAKE = 1.0
"""Seconds between two waits for an item: Windows delivers Ctrl-C only between them."""


@dataclass(frozen=True, slots=True)
class _End:
    """End of the items."""

    error: BaseException | None
    """What ended them, if it was an error."""


class Arriving(Iterator[T]):
    """Items that another thread reads ahead."""

    def __init__(
        self,
        items: Iterable[T],
        ahead: int,
        *,
        waiting: Callable[[], None] | None = None,
        ended: Callable[[], None] | None = None,
        pause: float = PAUSE,
    ) -> None:
        """Begin to read.

        Args:
            items: the items, in whose iterator another thread may wait.
            ahead: number of items to read ahead.
            waiting: called each time before `take` waits for its first item.
            ended: called if there was no such item.
            pause: seconds without a new item after which those that were read are taken.
        """
        self._queue: Queue[tuple[T] | _End] = Queue(ahead)
        self._end: _End | None = None
        self._waiting, self._ended, self._pause = waiting, ended, pause
        self._thread = Thread(target=self._read, args=(items,), name="weft reader", daemon=True)
        self._thread.start()

    def __next__(self) -> T:
        """Return the next item, after waiting for it."""
        for item in self.take(1):
            return item
        raise StopIteration

    def take(self, most: int) -> list[T]:
        """Return the next items: at least one, unless they have ended.

        They are fewer than `most` if the items end, if none arrives during the pause, or if they
        have been arriving one by one for `PATIENCE`.

        Args:
            most: maximum number of items.
        """
        taken: list[T] = []
        waits = self._end is None and self._queue.empty()
        if waits and self._waiting is not None:
            self._waiting()
        deadline = None
        while len(taken) < most and self._end is None:
            try:
                if deadline is None:
                    arrival = self._first()
                    deadline = time.monotonic() + PATIENCE
                else:
                    remaining = max(0.0, deadline - time.monotonic())
                    arrival = self._queue.get(timeout=min(self._pause, remaining))
            except Empty:
                break
            if isinstance(arrival, _End):
                self._end = arrival
            else:
                taken.extend(arrival)
        if taken or self._end is None:
            return taken
        if waits and self._ended is not None:
            self._ended()
        if self._end.error is not None:
            raise self._end.error
        return []

    def _first(self) -> tuple[T] | _End:
        """Wait for an item."""
        while True:
            try:
                return self._queue.get(timeout=_WAKE)
            except Empty:
                continue

    def _read(self, items: Iterable[T]) -> None:
        """Read all items into the queue."""
        error: BaseException | None = None
        try:
            for item in items:
                self._queue.put((item,))
        except BaseException as caught:  # noqa: BLE001 - the other thread raises it
            error = caught
        self._queue.put(_End(error))


def take(items: Iterator[T], most: int) -> list[T]:
    """Return the next items: all that have arrived of an `Arriving`, or `most` of another iterator.

    Args:
        items: the iterator.
        most: maximum number of items.
    """
    return items.take(most) if isinstance(items, Arriving) else list(islice(items, most))
