"""Batcher: sentences of many callers, worked on together by one thread.

The thread owns whatever works, so a model never has two callers.  What waits is a queue
by key (equal settings of search); the oldest sentence says which key is next, so nobody
starves.  When the thread is free and few wait, it gives others a moment to come.

Not here: HTTP (`app.py`), and what a sentence is.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

Cancelled = Callable[[], Sequence[int]]
"""Which of the sentences that are worked on nobody waits for any more, by their places."""
Key = TypeVar("Key", bound=Hashable)
Given = TypeVar("Given")
Made = TypeVar("Made")


class FullError(Exception):
    """The queue has no room for so many sentences."""


class ClosedError(Exception):
    """Nothing new is taken on."""


@dataclass(slots=True, eq=False)
class Job(Generic[Key, Given, Made]):
    """What one caller wants, and where it will find it."""

    key: Key
    given: Sequence[Given]
    since: float
    """When it came, by the monotonic clock."""
    future: Future[list[Made]] = field(default_factory=Future)
    """One result for each that was given; or the error of the first that failed."""
    made: dict[int, Made] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class _Item(Generic[Key, Given, Made]):
    """One sentence of a job."""

    job: Job[Key, Given, Made]
    index: int


class Batcher(Generic[Key, Given, Made]):
    """Puts what waits together and hands it to one function, in one thread."""

    def __init__(
        self,
        work: Callable[[Key, Sequence[Given], Cancelled], Sequence[Made]],
        *,
        size: int,
        wait: float,
        room: int,
        callback: Callable[[int, float], None] | None = None,
    ) -> None:
        """Make it; `running` starts the thread.

        Args:
            work: one result for each that is given, all of one key; called by one thread
                alone.  When it fails on several, each is tried alone.  It may ask, again
                and again, which of them nobody waits for any more.
            size: most that are given to it at once.
            wait: seconds to wait for others when fewer are there.
            room: most that may wait.
            callback: hears of each batch, how large it was and how many seconds it took.
        """
        self._work, self._size, self._wait, self._room = work, size, wait, room
        self._callback = callback
        self._changed = threading.Condition()
        self._waiting: dict[Key, deque[_Item[Key, Given, Made]]] = {}
        self._count = 0
        self._taken: list[_Item[Key, Given, Made]] = []
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="weft-batches", daemon=True)

    @contextmanager
    def running(self) -> Iterator[Batcher[Key, Given, Made]]:
        """Start the thread, and in the end let it finish what was taken on."""
        self._thread.start()
        try:
            yield self
        finally:
            self.close()
            self._thread.join()

    @property
    def waiting(self) -> int:
        """Sentences in the queue."""
        return self._count

    @property
    def busy(self) -> bool:
        """Whether anything waits or is worked on."""
        with self._changed:
            return bool(self._count or self._taken)

    @property
    def alive(self) -> bool:
        """Whether new work would be taken on."""
        return self._thread.is_alive() and not self._closed

    def submit(self, key: Key, given: Sequence[Given]) -> Job[Key, Given, Made]:
        """Take on some sentences of one caller.

        Raises:
            FullError: there is no room for all of them.
            ClosedError: the batcher is stopping, or its thread has ended.
        """
        job = Job[Key, Given, Made](key, given, time.monotonic())
        if not given:
            job.future.set_result([])
            return job
        with self._changed:
            if not self.alive:
                raise ClosedError
            if self._count + len(given) > self._room:
                raise FullError
            items = (_Item(job, index) for index in range(len(given)))
            self._waiting.setdefault(key, deque()).extend(items)
            self._count += len(given)
            self._changed.notify_all()
        return job

    def cancel(self, job: Job[Key, Given, Made]) -> int:
        """Drop a job whose caller has gone; return how many of its sentences were not done."""
        with self._changed:
            if not job.future.cancel():
                return 0
            begun = sum(one.job is job for one in self._taken if one.index not in job.made)
            return self._drop(job) + begun

    def close(self) -> None:
        """Take on nothing more; what waits will be done."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def abandon(self) -> int:
        """Close, and let go of what waits; return how many sentences that were."""
        with self._changed:
            self._closed = True
            jobs = {item.job for items in self._waiting.values() for item in items}
            dropped = self._count
            for job in jobs:
                self._fail(job, ClosedError())
            self._changed.notify_all()
        return dropped

    def _drop(self, job: Job[Key, Given, Made]) -> int:
        """Take a job's sentences out of the queue; the lock is held."""
        items = self._waiting.pop(job.key, deque())
        kept = deque(item for item in items if item.job is not job)
        dropped = len(items) - len(kept)
        if kept:
            self._waiting[job.key] = kept
        self._count -= dropped
        return dropped

    def _run(self) -> None:
        try:
            while items := self._next():
                self._do(items)
                with self._changed:
                    self._taken = []
        finally:
            # Nobody waits for ever for a thread that has ended.
            self.abandon()
            with self._changed:
                for item in self._taken:
                    self._fail(item.job, ClosedError())
                self._taken = []

    def _next(self) -> list[_Item[Key, Given, Made]]:
        """Wait for the next batch; an empty one says that nothing will come any more."""
        with self._changed:
            while True:
                if not self._waiting:
                    if self._closed:
                        return []
                    self._changed.wait()
                    continue
                key = min(self._waiting, key=lambda one: self._waiting[one][0].job.since)
                items = self._waiting[key]
                left = items[0].job.since + self._wait - time.monotonic()
                if len(items) < self._size and left > 0 and not self._closed:
                    self._changed.wait(left)
                    continue
                taken = [items.popleft() for _ in range(min(self._size, len(items)))]
                if not items:
                    del self._waiting[key]
                self._count -= len(taken)
                self._taken = taken
                return taken

    def _do(self, items: Sequence[_Item[Key, Given, Made]]) -> None:
        """Work on a batch; on its sentences one by one when it fails."""
        items = [item for item in items if not item.job.future.done()]
        if not items:
            return
        started = time.monotonic()
        try:
            given = [item.job.given[item.index] for item in items]
            made = self._work(items[0].job.key, given, lambda: _cancelled(items))
            pairs = list(zip(items, made, strict=True))
        except Exception as error:  # noqa: BLE001 - one sentence must not take others with it
            if len(items) == 1:
                with self._changed:
                    self._fail(items[0].job, error)
                return
            for item in items:
                self._do([item])
            return
        if self._callback is not None:  # before any caller hears, who may ask for the figures next
            self._callback(len(items), time.monotonic() - started)
        with self._changed:
            for item, one in pairs:
                job = item.job
                job.made[item.index] = one
                if len(job.made) == len(job.given) and not job.future.done():
                    job.future.set_result([job.made[index] for index in range(len(job.given))])

    def _fail(self, job: Job[Key, Given, Made], error: BaseException) -> None:
        """Tell the caller of an error, and work on nothing more of the job; the lock is held."""
        self._drop(job)
        if not job.future.done():
            job.future.set_exception(error)


def _cancelled(items: Sequence[_Item[Any, Any, Any]]) -> list[int]:
    """Return the places of sentences whose callers have gone."""
    return [place for place, item in enumerate(items) if item.job.future.done()]
