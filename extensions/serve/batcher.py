"""Batcher: collect sentences of many clients into batches for one worker thread.

One thread owns the model, so it never has concurrent callers.  Waiting sentences are queued
by key (equal search settings); the key of the oldest sentence is served next, so no key
starves.  If the thread is idle and few sentences wait, it waits briefly for more.

The HTTP layer is in `app.py`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from traceback import clear_frames
from typing import Any, Generic, TypeVar

Cancelled = Callable[[], Sequence[int]]
"""Returns the indices of the sentences in the current batch whose clients are gone."""
Key = TypeVar("Key", bound=Hashable)
Given = TypeVar("Given")
Made = TypeVar("Made")


class FullError(Exception):
    """The queue does not have enough capacity for a job."""


class ClosedError(Exception):
    """The batcher no longer accepts jobs."""


@dataclass(slots=True, eq=False)
class Job(Generic[Key, Given, Made]):
    """The sentences of one client, and the future with their results."""

    key: Key
    inputs: Sequence[Given]
    since: float
    """Time of submission, by the monotonic clock."""
    future: Future[list[Made]] = field(default_factory=Future)
    """One result for each sentence, or the error of the first that failed."""
    outputs: dict[int, Made] = field(default_factory=dict)
    listener: Callable[[int, Made], None] | None = None
    """Called with the index and the result of each sentence as soon as it is done, by the worker
    thread; it must return at once."""


@dataclass(frozen=True, slots=True, eq=False)
class _Item(Generic[Key, Given, Made]):
    """One sentence of a job."""

    job: Job[Key, Given, Made]
    index: int


class Batcher(Generic[Key, Given, Made]):
    """Collects waiting sentences into batches and processes them in one thread."""

    def __init__(
        self,
        work: Callable[[Key, Sequence[Given], Cancelled], Sequence[Made]],
        *,
        size: int,
        wait: float,
        capacity: int,
        callback: Callable[[int, float], None] | None = None,
    ) -> None:
        """Create the batcher; `running` starts its thread.

        Args:
            work: processes a batch of one key and returns one result per sentence; only the worker
                thread calls it. If it raises on several sentences, each is retried alone. Its last
                argument may be called repeatedly for the sentences whose clients are gone.
            size: maximum batch size.
            wait: seconds to wait for more sentences if the batch is not full.
            capacity: capacity of the queue, in sentences.
            callback: called after each batch with its size and its duration in seconds.
        """
        self._work, self._size, self._wait, self._room = work, size, wait, capacity
        self._callback = callback
        self._changed = threading.Condition()
        self._waiting: dict[Key, deque[_Item[Key, Given, Made]]] = {}
        self._count = 0
        self._taken: list[_Item[Key, Given, Made]] = []
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="weft-batches", daemon=True)

    @contextmanager
    def running(self) -> Iterator[Batcher[Key, Given, Made]]:
        """Start the thread; on exit, let it finish the accepted sentences."""
        self._thread.start()
        try:
            yield self
        finally:
            self.close()
            self._thread.join()

    @property
    def waiting(self) -> int:
        """Number of sentences in the queue."""
        return self._count

    @property
    def busy(self) -> bool:
        """Whether any sentence is waiting or being processed."""
        with self._changed:
            return bool(self._count or self._taken)

    @property
    def alive(self) -> bool:
        """Whether new jobs are accepted."""
        return self._thread.is_alive() and not self._closed

    def submit(
        self,
        key: Key,
        inputs: Sequence[Given],
        listener: Callable[[int, Made], None] | None = None,
    ) -> Job[Key, Given, Made]:
        """Queue the sentences of one client; `listener` is that of its `Job`.

        Raises:
            FullError: the queue does not have enough capacity for all of them.
            ClosedError: the batcher is stopping, or its thread has ended.
        """
        job = Job[Key, Given, Made](key, inputs, time.monotonic(), listener=listener)
        if not inputs:
            job.future.set_result([])
            return job
        with self._changed:
            if not self.alive:
                raise ClosedError
            if self._count + len(inputs) > self._room:
                raise FullError(f"the queue cannot take {len(inputs)} more texts")
            items = (_Item(job, index) for index in range(len(inputs)))
            self._waiting.setdefault(key, deque()).extend(items)
            self._count += len(inputs)
            self._changed.notify_all()
        return job

    def cancel(self, job: Job[Key, Given, Made]) -> int:
        """Cancel a job whose client is gone; return how many of its sentences were not done."""
        with self._changed:
            if not job.future.cancel():
                return 0
            begun = sum(item.job is job for item in self._taken if item.index not in job.outputs)
            return self._drop(job) + begun

    def close(self) -> None:
        """Accept no more jobs; queued sentences are still processed."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def abandon(self) -> int:
        """Close and fail all queued jobs; return the number of dropped sentences."""
        with self._changed:
            self._closed = True
            jobs = {item.job for items in self._waiting.values() for item in items}
            dropped = self._count
            for job in jobs:
                self._fail(job, ClosedError())
            self._changed.notify_all()
        return dropped

    def _drop(self, job: Job[Key, Given, Made]) -> int:
        """Remove a job's sentences from the queue; the caller holds the lock."""
        items = self._waiting.pop(job.key, deque())
        remaining = deque(item for item in items if item.job is not job)
        dropped = len(items) - len(remaining)
        if remaining:
            self._waiting[job.key] = remaining
        self._count -= dropped
        return dropped

    def _run(self) -> None:
        try:
            while items := self._next():
                self._do(items)
                with self._changed:
                    self._taken = []
        finally:
            # Without the thread, remaining futures would never complete.
            self.abandon()
            with self._changed:
                for item in self._taken:
                    self._fail(item.job, ClosedError())
                self._taken = []

    def _next(self) -> list[_Item[Key, Given, Made]]:
        """Wait for the next batch and return it; an empty batch means that the batcher is done."""
        with self._changed:
            while True:
                if not self._waiting:
                    if self._closed:
                        return []
                    self._changed.wait()
                    continue
                key = min(
                    self._waiting, key=lambda candidate: self._waiting[candidate][0].job.since
                )
                items = self._waiting[key]
                remaining = items[0].job.since + self._wait - time.monotonic()
                if len(items) < self._size and remaining > 0 and not self._closed:
                    self._changed.wait(remaining)
                    continue
                taken = [items.popleft() for _ in range(min(self._size, len(items)))]
                if not items:
                    del self._waiting[key]
                self._count -= len(taken)
                self._taken = taken
                return taken

    def _do(self, items: Sequence[_Item[Key, Given, Made]]) -> None:
        """Process a batch; if it fails, process its sentences one by one."""
        items = [item for item in items if not item.job.future.done()]
        if not items:
            return
        started = time.monotonic()
        try:
            inputs = [item.job.inputs[item.index] for item in items]
            outputs = self._work(items[0].job.key, inputs, lambda: _cancelled(items))
            pairs = list(zip(items, outputs, strict=True))
        except Exception as error:  # noqa: BLE001 - one sentence must not fail the others
            # The error outlives this function; without its frames the tensors of the batch do not.
            clear_frames(error.__traceback__)
            if len(items) == 1:
                with self._changed:
                    self._fail(items[0].job, error)
                return
            for item in items:
                self._do([item])
            return
        if self._callback is not None:  # before futures complete: clients may read metrics next
            self._callback(len(items), time.monotonic() - started)
        with self._changed:
            for item, output in pairs:
                job = item.job
                job.outputs[item.index] = output
                if job.listener is not None and not job.future.done():
                    job.listener(item.index, output)
                if len(job.outputs) == len(job.inputs) and not job.future.done():
                    job.future.set_result([job.outputs[index] for index in range(len(job.inputs))])

    def _fail(self, job: Job[Key, Given, Made], error: BaseException) -> None:
        """Set a job's exception and drop its remaining sentences; the caller holds the lock."""
        self._drop(job)
        if not job.future.done():
            job.future.set_exception(error)


def _cancelled(items: Sequence[_Item[Any, Any, Any]]) -> list[int]:
    """Return the indices of sentences whose clients are gone."""
    return [index for index, item in enumerate(items) if item.job.future.done()]
