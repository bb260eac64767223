"""Heartbeats: a process that stops responding is named within minutes.

torchrun notices a process that died, but not one that was stopped or hangs; the others would wait
for it in a collective until its timeout.  Each process therefore counts up in the store that the
processes share, and watches the counts of the others, in a thread that runs while the main
thread waits.

torchrun itself may be killed.  Its workers would then train on without it, because they exchange
gradients among themselves, and hold the folder of the run.  They end, too: each notices that its
parent has gone, or that the store, which a process of torchrun serves, does not answer.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from torch.distributed.distributed_c10d import Store

from .stopping import StopRequest
from .world import World

BEAT = 5.0
"""Seconds between two heartbeats."""
LOOK = 0.5
"""Seconds between two looks for a request to stop."""
LAUNCHED = "TORCHELASTIC_RUN_ID"
"""Environment variable that torchrun sets for its workers."""
_STOP = "stop"
"""Key of the signal that asks a process to stop."""
_SILENT = "see whether it was stopped or hangs; start again with --resume"
_ALONE = "it was killed or its machine is gone; start it again with --resume"


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
        self._ranks_before: set[int] = set()

    def beat(self) -> None:
        """Count up, with the name of this process."""
        self._count += 1
        name = f"process {self._rank}, pid {os.getpid()} on {socket.gethostname()}"
        self._store.set(f"beat/{self._rank}", json.dumps([self._count, name]))

    def silent(self) -> list[str]:
        """Return the names of the processes whose last heartbeat is too old."""
        silent_processes, now = [], self._clock()
        self._ranks_before = {other for other in self._others if other < self._rank}
        for other in self._others:
            key = f"beat/{other}"
            text = self._store.get(key).decode() if self._store.check([key]) else ""
            before, since = self._seen.get(other, (None, now))
            if text != before:
                self._seen[other] = (text, now)
            elif now - since > self._patience:
                silent_processes.append(json.loads(text)[1] if text else f"process {other}")
                self._ranks_before.discard(other)
        return silent_processes

    @property
    def is_first(self) -> bool:
        """Whether all processes before this one are silent, so that this one reports them."""
        return not self._ranks_before

    def problem(self, launcher: int | None) -> tuple[str, str] | None:
        """Count up and look at the others; return what is wrong and what to do, or None.

        Args:
            launcher: process id of torchrun; None if this process was started otherwise.
        """
        if launcher is not None and os.getppid() != launcher:
            return f"torchrun, process {launcher}, has ended without its workers", _ALONE
        try:
            self.beat()
            silent = self.silent()
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            return f"the store of torchrun does not answer: {reason:.200}", _ALONE
        if silent:
            return f"no heartbeat for {self._patience:.0f} s from {'; '.join(silent)}", _SILENT
        return None

    def share(self, stop: StopRequest) -> None:
        """Tell the other processes of a request to stop, or take one of theirs."""
        with suppress(RuntimeError):  # the next beat reports a store that does not answer
            if stop.signal:
                self._store.set(_STOP, str(stop.signal))
            elif self._store.check([_STOP]):
                stop.pass_on(int(self._store.get(_STOP)))


@contextmanager
def watched(world: World, patience: float, stop: StopRequest) -> Iterator[None]:
    """Send heartbeats in the block, and end this process if another one is silent or torchrun ends.

    A request to stop at one process reaches the others within `LOOK` seconds.

    Args:
        world: the processes.
        patience: seconds without a heartbeat.
        stop: the request of this process.
    """
    if world.store is None:
        yield
        return
    wake, done = threading.Event(), threading.Event()
    heartbeat = Heartbeat(world.store, world.rank, world.size, patience)
    launcher = os.getppid() if LAUNCHED in os.environ else None

    def run() -> None:
        beaten = time.monotonic()
        while True:
            wake.wait(LOOK)
            wake.clear()
            if done.is_set():
                return
            heartbeat.share(stop)
            if time.monotonic() - beaten < BEAT:
                continue
            if problem := heartbeat.problem(launcher):
                is_first = os.environ.get("LOCAL_RANK", "0") == "0"  # on this machine
                _end(*problem, speaks=heartbeat.is_first if problem[1] == _SILENT else is_first)
            beaten = time.monotonic()

    heartbeat.beat()
    thread = threading.Thread(target=run, name="heartbeat", daemon=True)
    thread.start()
    stop.received = wake.set
    try:
        yield
    finally:
        done.set()
        wake.set()
        thread.join()


def _end(problem: str, help_: str, *, speaks: bool) -> None:
    """End this process at once: its main thread waits in a collective and handles no signals.

    Args:
        problem: what is wrong.
        help_: what to do.
        speaks: whether this process prints it, of all that notice the same.
    """
    with suppress(OSError):  # the reader of stderr may have gone with torchrun
        sys.stderr.write(f"error: {problem}\n  help: {help_}\n" if speaks else "")
        sys.stderr.flush()
    os._exit(1)
