"""The batcher: every client gets its own results, and no future is left incomplete."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest
from weft.extensions.serve.batcher import Batcher, Cancelled, ClosedError, FullError

SECONDS = 20
"""More than any test takes; a future that is not done by then never will be."""


class Worker:
    """Adds the key to every number; records the batches, and optionally waits before each."""

    def __init__(self, *, blocked: bool = False) -> None:
        """Create the worker; if `blocked`, each batch waits for `go`."""
        self.batches: list[tuple[int, list[int]]] = []
        self.go, self.began = threading.Event(), threading.Event()
        self.cancelled: list[int] = []
        if not blocked:
            self.go.set()

    def __call__(self, key: int, given: Sequence[int], cancelled: Cancelled) -> list[int]:
        """Return the sums."""
        self.batches.append((key, list(given)))
        self.began.set()
        assert self.go.wait(SECONDS)
        self.cancelled = list(cancelled())
        if 666 in given:
            raise ValueError("666")
        return [key + one for one in given]


def made(work: Worker, *, size: int = 4, wait: float = 0.0, capacity: int = 100) -> Batcher:
    """Return a batcher of numbers."""
    return Batcher[int, int, int](work, size=size, wait=wait, capacity=capacity)


def test_many_callers_each_get_their_own() -> None:
    """200 jobs from 16 threads, with three keys and 0 to 3 numbers."""
    work = Worker()
    with made(work, size=8, capacity=10_000).running() as batcher, ThreadPoolExecutor(16) as pool:

        def call(number: int) -> list[int]:
            given = [10 * number + place for place in range(number % 4)]
            return batcher.submit(1000 * (number % 3), given).future.result(SECONDS)

        found = list(pool.map(call, range(200)))

    assert found == [
        [1000 * (n % 3) + 10 * n + place for place in range(n % 4)] for n in range(200)
    ]
    assert all(len(given) <= 8 for _, given in work.batches)
    assert sum(len(given) for _, given in work.batches) == sum(n % 4 for n in range(200))


def test_waiting_jobs_are_batched_by_key_oldest_first() -> None:
    """Five jobs are submitted while one batch is processed."""
    work = Worker(blocked=True)
    with made(work).running() as batcher:
        first = batcher.submit(1, [0])
        assert work.began.wait(SECONDS)
        jobs = [batcher.submit(key, [n, n + 1]) for n, key in ((10, 2), (20, 1), (30, 2), (40, 2))]
        work.go.set()
        for job in (first, *jobs):
            job.future.result(SECONDS)

    assert work.batches == [(1, [0]), (2, [10, 11, 30, 31]), (1, [20, 21]), (2, [40, 41])]


def test_a_free_worker_waits_a_moment_for_others() -> None:
    """Two separate jobs share a batch; a full batch starts at once."""
    work = Worker()
    with made(work, size=2, wait=SECONDS).running() as batcher:
        first = batcher.submit(1, [1])
        time.sleep(0.02)
        second = batcher.submit(1, [2])

        assert first.future.result(SECONDS / 2) == [2]
        assert second.future.result(SECONDS / 2) == [3]
    assert work.batches == [(1, [1, 2])]


def test_a_failing_job_does_not_fail_the_batch() -> None:
    """The batch is retried one by one; only the failing client gets the exception."""
    work = Worker(blocked=True)
    with made(work).running() as batcher:
        batcher.submit(0, [0])
        assert work.began.wait(SECONDS)
        bad, good = batcher.submit(1, [5, 666, 7]), batcher.submit(1, [8])
        work.go.set()

        assert good.future.result(SECONDS) == [9]
        with pytest.raises(ValueError, match="666"):
            bad.future.result(SECONDS)


def test_a_full_queue_and_a_closed_one_refuse() -> None:
    """A job is accepted or rejected as a whole."""
    work = Worker(blocked=True)
    with made(work, capacity=3).running() as batcher:
        batcher.submit(1, [0])
        assert work.began.wait(SECONDS)
        waiting = batcher.submit(1, [1, 2])
        with pytest.raises(FullError):
            batcher.submit(1, [3, 4])
        with pytest.raises(FullError, match="half of the queue"):
            batcher.submit(1, [3])
        last = batcher.submit(1, [3], client="another")
        assert batcher.waiting == 3

        batcher.close()
        with pytest.raises(ClosedError):
            batcher.submit(1, [5])
        work.go.set()
        assert waiting.future.result(SECONDS) == [2, 3]
        assert last.future.result(SECONDS) == [4]


def test_a_cancelled_job_frees_its_place_and_is_not_worked_on() -> None:
    """Later jobs move up in the queue."""
    work = Worker(blocked=True)
    with made(work, capacity=2).running() as batcher:
        batcher.submit(1, [0])
        assert work.began.wait(SECONDS)
        cancelled = batcher.submit(1, [1, 2])

        assert batcher.cancel(cancelled) == 2
        behind = batcher.submit(1, [3, 4])
        work.go.set()
        assert behind.future.result(SECONDS) == [4, 5]

    assert work.batches == [(1, [0]), (1, [3, 4])]
    with pytest.raises(CancelledError):
        cancelled.future.result(SECONDS)


def test_the_worker_gets_the_cancelled_indices() -> None:
    """The worker gets their indices in the batch; the other sentences are processed."""
    work = Worker(blocked=True)
    with made(work, size=6, wait=SECONDS).running() as batcher:
        jobs = [batcher.submit(1, given) for given in ([10], [20, 21], [30, 31, 32])]
        assert work.began.wait(SECONDS)

        assert batcher.cancel(jobs[1]) == 2
        assert batcher.cancel(jobs[2]) == 3
        assert batcher.waiting == 0
        work.go.set()
        assert jobs[0].future.result(SECONDS) == [11]

    assert work.batches == [(1, [10, 20, 21, 30, 31, 32])]
    assert work.cancelled == [1, 2, 3, 4, 5]


def test_abandoning_raises_in_all_waiting_jobs() -> None:
    """The current batch is finished; waiting jobs get an exception."""
    work = Worker(blocked=True)
    with made(work).running() as batcher:
        first = batcher.submit(1, [0])
        assert work.began.wait(SECONDS)
        waiting = batcher.submit(2, [1, 2])

        assert batcher.abandon() == 2
        with pytest.raises(ClosedError):
            waiting.future.result(SECONDS)
        work.go.set()
        assert first.future.result(SECONDS) == [1]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dead_thread_raises_in_all_waiting_jobs() -> None:
    """As when `SystemExit` is raised in the thread."""

    def work(key: int, given: Sequence[int], cancelled: Cancelled) -> list[int]:  # noqa: ARG001
        raise SystemExit

    with Batcher[int, int, int](work, size=1, wait=0, capacity=9).running() as batcher:
        jobs = [batcher.submit(1, [1]), batcher.submit(1, [2])]
        for job in jobs:
            with pytest.raises(ClosedError):
                job.future.result(SECONDS)
        assert not batcher.alive
        assert not batcher.busy


def test_a_client_with_much_work_delays_its_own_alone() -> None:
    """A client with 32 costly sentences, and one that comes later with two cheap ones."""
    work = Worker(blocked=True)
    with Batcher[int, int, int](work, size=4, wait=0.0, capacity=100, batch_work=10).running() as b:
        b.submit(0, [0])
        assert work.began.wait(SECONDS)
        costly = b.submit(1, list(range(32)), client="costly", works=[9] * 32)
        cheap = b.submit(1, [100, 101], client="cheap", works=[1, 1])
        work.go.set()
        assert cheap.future.result(SECONDS) == [101, 102]
        costly.future.result(SECONDS)

    sentences = [sentence for _, given in work.batches for sentence in given]
    assert sentences.index(101) <= 4, "one costly sentence at most came between"
    assert all(sum(9 if s < 100 else 1 for s in given) <= 10 for _, given in work.batches[1:])


def test_clients_of_equal_work_alternate() -> None:
    """Whoever comes first: each gets a sentence in turn."""
    work = Worker(blocked=True)
    with Batcher[int, int, int](work, size=1, wait=0.0, capacity=100).running() as batcher:
        batcher.submit(0, [0])
        assert work.began.wait(SECONDS)
        jobs = [batcher.submit(n, [10 * n + k for k in range(3)], client=n) for n in (1, 2)]
        work.go.set()
        for job in jobs:
            job.future.result(SECONDS)

    assert [given for _, given in work.batches[1:]] == [[10], [20], [11], [21], [12], [22]]


def test_a_client_that_comes_back_has_saved_no_turns() -> None:
    """Otherwise one that was idle for an hour could then have the server for an hour."""
    work = Worker()
    with Batcher[int, int, int](work, size=1, wait=0.0, capacity=100).running() as batcher:
        batcher.submit(0, [1], client="idle").future.result(SECONDS)
        for _ in range(20):
            batcher.submit(0, [2], client="busy", works=[50]).future.result(SECONDS)
        work.go.clear()
        work.began.clear()
        batcher.submit(0, [3], client="busy")
        assert work.began.wait(SECONDS)
        both = [batcher.submit(0, [c] * 4, client=name) for c, name in ((7, "busy"), (8, "idle"))]
        work.go.set()
        for job in both:
            job.future.result(SECONDS)

    after = [given[0] for _, given in work.batches[-8:]]
    assert after.index(7) <= 2, "the busy client is served before the idle one has had all"


def test_the_work_of_a_client_is_limited_while_it_is_not_done() -> None:
    """The first job is always accepted, and others again when it is done."""
    work = Worker(blocked=True)
    options = {"size": 4, "wait": 0.0, "capacity": 100, "client_work": 10}
    with Batcher[int, int, int](work, **options).running() as batcher:  # type: ignore[arg-type]
        first = batcher.submit(1, [0], client="a", works=[12])
        assert work.began.wait(SECONDS)
        with pytest.raises(FullError, match="too much work"):
            batcher.submit(1, [1], client="a", works=[1])
        other = batcher.submit(1, [2], client="b", works=[3])
        work.go.set()
        first.future.result(SECONDS)
        other.future.result(SECONDS)
        while batcher.busy:
            time.sleep(0.001)
        assert batcher.submit(1, [3], client="a", works=[1]).future.result(SECONDS) == [4]
