"""Batcher: collect sentences of many clients into batches for one worker thread.

One thread owns the model, so it never has concurrent callers.  The queue is fair between clients:
each sentence has an estimate of its work, and the next is of the client for which least work was
done, so a client with much work delays its own alone.  A batch has sentences of one key (equal
search settings) and a bounded work, so that others do not wait for long.  If the thread is idle and
few sentences wait, it waits briefly for more.

Source: Goyal, Vin, Cheng 1996, Start-time Fair Queueing.

The HTTP layer is in `app.py`.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
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
class PendingSentences(Generic[Key, Given, Made]):
    """The sentences of one client, and the future with their results."""

    key: Key
    inputs: Sequence[Given]
    since: float
    """Time of submission, by the monotonic clock."""
    client: Hashable = None
    """Whose job it is."""
    works: Sequence[int] = ()
    """Estimated work of each sentence."""
    future: Future[list[Made]] = field(default_factory=Future)
    """One result for each sentence, or the error of the first that failed."""
    outputs: dict[int, Made] = field(default_factory=dict)
    listener: Callable[[int, Made], None] | None = None
    """Called with the index and the result of each sentence as soon as it is done, by the worker
    thread; it must return at once."""


@dataclass(frozen=True, slots=True, eq=False)
class _Item(Generic[Key, Given, Made]):
    """One sentence of a job."""

    job: PendingSentences[Key, Given, Made]
    index: int

    @property
    def work(self) -> int:
        """Its estimated work."""
        return self.job.works[self.index]


class Batcher(Generic[Key, Given, Made]):
    """Collects waiting sentences into batches and processes them in one thread."""

    def __init__(
        self,
        work: Callable[[Key, Sequence[Given], Cancelled], Sequence[Made]],
        *,
        size: int,
        wait: float,
        capacity: int,
        batch_work: float = math.inf,
        client_work: float = math.inf,
        callback: Callable[[int, float], None] | None = None,
    ) -> None:
        """Create the batcher; `running` starts its thread.

        Args:
            work: processes a batch of one key and returns one result per sentence; only the worker
                thread calls it. If it raises on several sentences, each is retried alone. Its last
                argument may be called repeatedly for the sentences whose clients are gone.
            size: maximum batch size.
            wait: seconds to wait for more sentences if the batch is not full.
            capacity: capacity of the queue, in sentences, of which one client can have half.
            batch_work: maximum work of a batch of several sentences.
            client_work: maximum work of the sentences of one client that are not done.
            callback: called after each batch with its size and its duration in seconds.
        """
        self._work, self._size, self._wait, self._room = work, size, wait, capacity
        self._batch_work, self._client_work = batch_work, client_work
        self._callback = callback
        self._changed = threading.Condition()
        self._waiting: dict[Hashable, deque[_Item[Key, Given, Made]]] = {}
        """Sentences by client."""
        self._served: dict[Hashable, float] = {}
        """Virtual time of each client: the work that was done for it, as far as it waited."""
        self._now = 0.0
        """Virtual time of the last sentence that was taken."""
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
        *,
        client: Hashable = None,
        works: Sequence[int] = (),
    ) -> PendingSentences[Key, Given, Made]:
        """Queue the sentences of one client.

        Args:
            key: what sentences of a batch have in common.
            inputs: the sentences.
            listener: as of `PendingSentences`.
            client: whose sentences they are.
            works: estimated work of each sentence; 1 by default.

        Raises:
            FullError: the queue does not have enough capacity for all of them.
            ClosedError: the batcher is stopping, or its thread has ended.
        """
        works = works or [1] * len(inputs)
        now = time.monotonic()
        job = PendingSentences[Key, Given, Made](key, inputs, now, client, works, listener=listener)
        if not inputs:
            job.future.set_result([])
            return job
        with self._changed:
            if not self.alive:
                raise ClosedError
            if self._count + len(inputs) > self._room:
                raise FullError(f"the queue cannot take {len(inputs)} more texts")
            self._refuse_share(job)
            items = (_Item(job, index) for index in range(len(inputs)))
            self._waiting.setdefault(client, deque()).extend(items)
            self._served[client] = max(self._served.get(client, 0.0), self._now)
            self._count += len(inputs)
            self._changed.notify_all()
        return job

    def _refuse_share(self, job: PendingSentences[Key, Given, Made]) -> None:
        """Refuse a job with which its client would have more than its share.

        Raises:
            FullError: its client has half of the queue, or its sentences need too much work.
        """
        others = self._waiting.get(job.client, deque())
        pending = [*others, *(item for item in self._taken if item.job.client == job.client)]
        if others and len(others) + len(job.inputs) > self._room / 2:
            raise FullError("half of the queue has texts of this client")
        if pending and sum(item.work for item in pending) + sum(job.works) > self._client_work:
            raise FullError("the texts of this client that are not done need too much work")

    def cancel(self, job: PendingSentences[Key, Given, Made]) -> int:
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

    def _drop(self, job: PendingSentences[Key, Given, Made]) -> int:
        """Remove a job's sentences from the queue; the caller holds the lock."""
        items = self._waiting.pop(job.client, deque())
        remaining = deque(item for item in items if item.job is not job)
        dropped = len(items) - len(remaining)
        if remaining:
            self._waiting[job.client] = remaining
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
                first = self._waiting[self._next_client(self._waiting)][0]
                remaining = first.job.since + self._wait - time.monotonic()
                if remaining > 0 and not self._closed and not self._fills_batch(first.job.key):
                    self._changed.wait(remaining)
                    continue
                self._taken = self._take(first.job.key)
                self._count -= len(self._taken)
                return self._taken

    def _next_client(self, clients: Iterable[Hashable]) -> Hashable:
        """Return the client for which least work was done; of several, the one that waits longest.

        The caller holds the lock.
        """
        return min(clients, key=lambda c: (self._served[c], self._waiting[c][0].job.since))

    def _fills_batch(self, key: Key) -> bool:
        """Return whether enough sentences of a key wait; the caller holds the lock."""
        waiting = (item for items in self._waiting.values() for item in items)
        fitting = itertools.islice((item for item in waiting if item.job.key == key), self._size)
        return sum(1 for _ in fitting) == self._size

    def _take(self, key: Key) -> list[_Item[Key, Given, Made]]:
        """Remove a batch of a key from the queue, fairly; the caller holds the lock."""
        queues = {
            client: deque(item for item in items if item.job.key == key)
            for client, items in self._waiting.items()
        }
        taken: list[_Item[Key, Given, Made]] = []
        work = 0
        while len(taken) < self._size and (clients := [c for c, items in queues.items() if items]):
            client = self._next_client(clients)
            item = queues[client][0]
            if taken and work + item.work > self._batch_work:
                break
            taken.append(queues[client].popleft())
            work += item.work
            self._now = self._served[client]
            self._served[client] += item.work
        chosen = set(map(id, taken))
        for client in {item.job.client for item in taken}:
            remaining = deque(item for item in self._waiting[client] if id(item) not in chosen)
            if remaining:
                self._waiting[client] = remaining
            else:
                del self._waiting[client]
        # A client that comes back later begins at the virtual time of that moment.
        self._served = {
            c: at for c, at in self._served.items() if c in self._waiting or at > self._now
        }
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

    def _fail(self, job: PendingSentences[Key, Given, Made], error: BaseException) -> None:
        """Set a job's exception and drop its remaining sentences; the caller holds the lock."""
        self._drop(job)
        if not job.future.done():
            job.future.set_exception(error)


def _cancelled(items: Sequence[_Item[Any, Any, Any]]) -> list[int]:
    """Return the indices of sentences whose clients are gone."""
    return [index for index, item in enumerate(items) if item.job.future.done()]
