"""Heartbeats: silence is noticed, and only silence."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from torch.distributed import HashStore
from weft.runtime.train.distributed.heartbeat import Heartbeat, watched

from .conftest import ENVIRONMENT, Bench


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


def test_a_single_process_sends_no_heartbeat() -> None:
    """It has no store."""
    with watched(None, 0, 1, 10.0):
        pass


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
