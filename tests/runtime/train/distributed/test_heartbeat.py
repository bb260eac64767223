"""Heartbeats: silence is noticed, and only silence."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from torch.distributed import DistNetworkError, HashStore
from weft.runtime.train.distributed.heartbeat import Heartbeat, watched
from weft.runtime.train.distributed.stopping import StopRequest
from weft.runtime.train.distributed.world import World

from .conftest import ENVIRONMENT, Bench, tensors


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        """Begin at 0."""
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def test_a_process_is_silent_after_the_patience() -> None:
    """Three processes: one beats, one stops beating, and one never began."""
    store, clock = HashStore(), Clock()
    first, second = (Heartbeat(store, rank, 3, patience=60.0, clock=clock) for rank in (0, 1))
    second.beat()
    assert first.silent() == []

    for clock.now in (30.0, 59.0):
        second.beat()
        assert first.silent() == []
    clock.now = 61.0
    assert first.silent() == ["process 2"]
    clock.now = 120.0

    named = [name.partition(",")[0] for name in first.silent()]
    assert named == ["process 1", "process 2"]
    second.beat()
    assert first.silent() == ["process 2"]


def test_the_end_of_torchrun_is_a_problem() -> None:
    """A worker whose parent is another one than at its start has been orphaned."""
    heartbeat = Heartbeat(HashStore(), 0, 1, patience=60.0)

    assert heartbeat.problem(None) is None
    assert heartbeat.problem(os.getppid()) is None
    assert heartbeat.problem(os.getppid() + 1) == (
        f"torchrun, process {os.getppid() + 1}, has ended without its workers",
        "it was killed or its machine is gone; start it again with --resume",
    )


class Gone(HashStore):
    """A store whose server was killed."""

    def set(self, key: str, value: str) -> None:  # noqa: ARG002 - the interface
        """Raise what a TCPStore raises then."""
        raise DistNetworkError("failed to send: Connection reset by peer\nException raised from")


def test_a_store_that_does_not_answer_is_a_problem() -> None:
    """The process that serves it, on this or another machine, was killed."""
    problem = Heartbeat(Gone(), 0, 1, patience=60.0).problem(None)

    assert problem is not None
    assert problem[0] == (
        "the store of torchrun does not answer: failed to send: Connection reset by peer"
    )


def test_a_single_process_sends_no_heartbeat() -> None:
    """It has no store."""
    stop = StopRequest()
    with watched(World(), 10.0, stop):
        assert not stop.signal


def test_a_request_to_stop_reaches_the_others() -> None:
    """Of a process that got a signal; the others do as if they had got it."""
    store = HashStore()
    first, second = (Heartbeat(store, rank, 2, patience=60.0) for rank in (0, 1))
    asked, other = StopRequest(), StopRequest()

    second.share(other)
    assert other.signal == 0
    asked.signal = signal.SIGTERM
    first.share(asked)
    second.share(other)

    assert other.signal == signal.SIGTERM


@pytest.mark.slow
def test_a_stopped_process_is_named(bench: Bench) -> None:
    """SIGSTOP: torchrun sees a process that lives; the other one ends within the patience."""
    bench.file.write_text(bench.file.read_text().replace('"updates": 12', '"updates": 100000'))
    settings = ("--set=parallel.patience=10", "--set=evaluate.every=100000")
    command = bench.command("stopped", 2, *settings)
    log = bench.folder / "stopped.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=file, env=ENVIRONMENT, start_new_session=True
        )
    try:
        history = bench.folder / "stopped" / "metrics.jsonl"
        while process.poll() is None and not (history.is_file() and history.stat().st_size):
            time.sleep(0.2)
        victim = _worker_of(process.pid, rank=1)
        os.kill(victim, signal.SIGSTOP)
        code = process.wait(timeout=120)
    finally:
        os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None

    assert code != 0
    assert f"process 1, pid {victim}" in log.read_text()


def _worker_of(launcher: int, *, rank: int) -> int:
    """Return the process id of a worker of torchrun, by the rank in its environment."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            found = path.read_bytes().split(b"\0")
            parent = int((path.parent / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if parent == launcher and f"RANK={rank}".encode() in found:
            return int(path.parent.name)
    raise AssertionError(rank)


@pytest.mark.slow
def test_the_workers_of_a_killed_torchrun_end(bench: Bench) -> None:
    """SIGKILL of torchrun, which serves the store: no worker is left, and the run can be resumed.

    The seconds that pass are bounded by the time-out of the wait, which is long enough for a
    loaded machine.
    """
    text = bench.file.read_text()
    bench.file.write_text(text.replace('"updates": 12', '"updates": 100000'))
    log = bench.folder / "orphaned.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            bench.command("orphaned", 2, "--set=evaluate.every=100000"),
            stdout=file,
            stderr=file,
            env=ENVIRONMENT,
            start_new_session=True,
        )
    workers: list[int] = []
    try:
        saved = bench.folder / "orphaned" / "checkpoints"
        while process.poll() is None and not any(saved.glob("[0-9]*")):
            time.sleep(0.1)
        workers = [_worker_of(process.pid, rank=rank) for rank in (0, 1)]
        process.kill()
        process.wait()
        late = time.monotonic() + 90
        while any(map(_is_running, workers)) and time.monotonic() < late:
            time.sleep(0.2)
        left = [worker for worker in workers if _is_running(worker)]
    finally:
        for one in (process.pid, *filter(_is_running, workers)):  # each has its own session
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        bench.file.write_text(text)

    assert left == []
    assert "torchrun, process" in log.read_text()
    assert "start it again with --resume" in log.read_text()
    newest = sorted(saved.glob("[0-9]*"))[-1].name
    updates = int(newest) + 2
    resumed = bench.train("orphaned", 2, updates=updates)
    straight = bench.train("straight", 2, updates=updates)
    last = f"{updates:06d}"
    mine, other = tensors(resumed, last), tensors(straight, last)
    assert mine.keys() == other.keys()
    assert all(mine[name].equal(other[name]) for name in other)


def _is_running(process: int) -> bool:
    """Return whether a process exists and has not ended."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
