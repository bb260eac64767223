"""Signals: Ctrl-C and SIGTERM as a request to save and stop."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def asked_to_stop(stop: Callable[[int], None], *, again_after: float = 0.0) -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into a request to stop; a second one acts at once.

    Args:
        stop: hears of it.
        again_after: seconds within which a second one is the same: under torchrun Ctrl-C comes
            from the terminal and from torchrun.
    """
    watched = (signal.SIGINT, signal.SIGTERM)
    asked: list[float] = []

    def handle(number: int, frame: FrameType | None) -> None:
        stop(number)
        if again_after and not asked:
            asked.append(time.monotonic())
            return
        if asked and time.monotonic() - asked[0] < again_after:
            return
        for each in watched:
            signal.signal(each, before[each])
        if asked:
            signal.raise_signal(number)
        del frame

    try:
        before = {each: signal.signal(each, handle) for each in watched}
    except ValueError:  # not the main thread: whoever called us handles signals
        yield
        return
    try:
        yield
    finally:
        for each in watched:
            signal.signal(each, before[each])
