"""Signal handling: SIGINT (Ctrl-C) and SIGTERM request a training to save and stop."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_requested(stop: Callable[[int], None], *, again_after: float = 0.0) -> Iterator[None]:
    """Turn SIGINT and SIGTERM into a stop request; a second signal has its default effect.

    Args:
        stop: callback, called with the signal number.
        again_after: seconds within which a repeated signal counts as the same request: under
            torchrun Ctrl-C arrives twice, from the terminal and from torchrun.
    """
    watched = (signal.SIGINT, signal.SIGTERM)
    first_at: list[float] = []

    def handle(number: int, frame: FrameType | None) -> None:
        stop(number)
        if again_after and not first_at:
            first_at.append(time.monotonic())
            return
        if first_at and time.monotonic() - first_at[0] < again_after:
            return
        for each in watched:
            signal.signal(each, before[each])
        if first_at:
            signal.raise_signal(number)
        del frame

    try:
        before = {each: signal.signal(each, handle) for each in watched}
    except ValueError:  # not the main thread: the caller handles signals
        yield
        return
    try:
        yield
    finally:
        for each in watched:
            signal.signal(each, before[each])
