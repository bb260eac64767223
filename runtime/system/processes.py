"""Processes: the cores of this one, the signals at which it stops, and what it watches."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cores() -> list[int]:
    """Return the numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def gpus() -> list[str]:
    """Return the GPUs that processes share, as in `CUDA_VISIBLE_DEVICES`, without loading CUDA."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [device.strip() for device in visible.split(",") if device.strip()]
    return [str(number) for number, _ in enumerate(Path("/dev").glob("nvidia[0-9]*"))]


def stopping_signals() -> tuple[signal.Signals, ...]:
    """Return the signals at which a training saves and stops: SIGINT, SIGTERM and SIGHUP.

    SIGHUP comes when a terminal is closed or a connection ends.  It is left out where it does not
    exist, and where it is ignored, as by a program that nohup has started.
    """
    hangup = getattr(signal, "SIGHUP", None)
    ignored = hangup is None or signal.getsignal(hangup) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *(() if ignored else (hangup,)))


@contextmanager
def watching(look: Callable[[], bool], every: float) -> Iterator[None]:
    """Call a function in a thread, again and again, until it returns true or the block ends.

    Args:
        look: the function.
        every: seconds before each call.
    """
    done = threading.Event()

    def watch() -> None:
        while not done.wait(every):
            if look():
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
