"""Signals: Ctrl-C and SIGTERM as a request to save and stop."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def asked_to_stop(stop: Callable[[int], None]) -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into a request to stop; a second one acts at once."""
    watched = (signal.SIGINT, signal.SIGTERM)

    def handle(number: int, _: FrameType | None) -> None:
        stop(number)
        for each in watched:
            signal.signal(each, before[each])

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
