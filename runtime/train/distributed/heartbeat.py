"""Heartbeats: a process that stops responding is named within minutes.

torchrun notices a process that died, but not one that was stopped or hangs; the others would wait
for it in a collective until its timeout.  Each process therefore counts up in the store that the
processes share, and watches the counts of the others, in a thread that runs while the main
thread waits.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch.distributed.distributed_c10d import Store

BEAT = 5.0
"""Seconds between two heartbeats."""


class Heartbeat:
    """The heartbeat of one process, and its view of the others."""

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        patience: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch the other processes.

        Args:
            store: shared by the processes.
            rank: rank of this process.
            size: number of processes.
            patience: seconds after which a process without a heartbeat is silent.
            clock: current time in seconds.
        """
        self._store, self._rank, self._patience, self._clock = store, rank, patience, clock
        self._others = [other for other in range(size) if other != rank]
        self._count = 0
        self._seen: dict[int, tuple[str, float]] = {}

    def beat(self) -> None:
        """Count up, with the name of this process."""
        self._count += 1
        name = f"process {self._rank}, pid {os.getpid()} on {socket.gethostname()}"
        self._store.set(f"beat/{self._rank}", json.dumps([self._count, name]))

    def silent(self) -> list[str]:
        """Return the names of the processes whose last heartbeat is too old."""
        found, now = [], self._clock()
        for other in self._others:
            key = f"beat/{other}"
            text = self._store.get(key).decode() if self._store.check([key]) else ""
            before, since = self._seen.get(other, (None, now))
            if text != before:
                self._seen[other] = (text, now)
            elif now - since > self._patience:
                found.append(json.loads(text)[1] if text else f"process {other}")
        return found


@contextmanager
def watched(store: Store | None, rank: int, size: int, patience: float) -> Iterator[None]:
    """Send heartbeats in the block, and end this process if another one is silent.

    Args:
        store: shared by the processes; None for a single process.
        rank: rank of this process.
        size: number of processes.
        patience: seconds without a heartbeat.
    """
    if store is None:
        yield
        return
    done = threading.Event()
    heartbeat = Heartbeat(store, rank, size, patience)

    def run() -> None:
        while not done.wait(BEAT):
            heartbeat.beat()
            if silent := heartbeat.silent():
                _end(silent, patience)

    heartbeat.beat()
    thread = threading.Thread(target=run, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _end(silent: list[str], patience: float) -> None:
    """End this process at once: its main thread waits in a collective and handles no signals."""
    sys.stderr.write(
        f"error: no heartbeat for {patience:.0f} s from {'; '.join(silent)}\n"
        "  help: see whether it was stopped or hangs; start again with --resume\n"
    )
    sys.stderr.flush()
    os._exit(1)
