"""Requests to stop a training: by a signal to this process, or by one to another of its processes.

A request is noticed between updates.  A validation may take long, so what only computes values may
be abandoned in the middle: `interruptible`.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

from ...system.processes import stopping_signals

if TYPE_CHECKING:
    from .world import World

AGAIN = 10.0
"""Seconds within which a repeated signal counts as the same request: under torchrun it may arrive
twice, from the terminal or a scheduler and, on a busy machine seconds later, from torchrun."""


class Interrupted(BaseException):
    """A computation was abandoned because of a request to stop.

    Like KeyboardInterrupt no `Exception`, so that no block that handles errors takes it for one.
    """


def signal_name(number: float) -> str:
    """Return the name of a signal, or "" for 0."""
    return signal.Signals(int(number)).name if number else ""


class StopRequest:
    """The request to stop, seen from one process."""

    def __init__(self, *, again_after: float = 0.0) -> None:
        """Begin without a request.

        Args:
            again_after: seconds within which a repeated signal counts as the same request.
        """
        self.signal = 0
        """Number of the signal that asks to stop; 0 for none."""
        self.received: Callable[[], None] = lambda: None
        """Called in the handler of a signal."""
        self._again_after = again_after
        self._main: int | None = None
        self._may_interrupt, self._passed_on = False, False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Take SIGINT, SIGTERM and SIGHUP as requests; a second one has its default effect.

        SIGHUP comes when the terminal is closed; a training that nohup has told to ignore it goes
        on.  Outside the main thread, signals are left to the caller.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        watched = stopping_signals()
        before = {number: signal.getsignal(number) or signal.SIG_DFL for number in watched}
        first_at: list[float] = []

        def handle(number: int, frame: FrameType | None) -> None:
            del frame
            if self._passed_on:  # sent by `pass_on`
                self._passed_on = False
            elif not first_at:
                first_at.append(time.monotonic())
                if not self._again_after:
                    restore()
            elif time.monotonic() - first_at[0] >= self._again_after:
                restore()
                signal.raise_signal(number)
            self.signal = self.signal or number
            self.received()
            if self._may_interrupt:
                self._may_interrupt = False
                raise Interrupted

        def restore() -> None:
            for number in watched:
                signal.signal(number, before[number])

        for number in watched:
            signal.signal(number, handle)
        self._main = threading.get_ident()
        try:
            yield
        finally:
            self._main = None
            restore()

    def pass_on(self, number: int) -> None:
        """Take the signal of another process as a request; call it from another thread."""
        if self.signal:
            return
        self.signal = number
        if self._main is not None and self._may_interrupt and hasattr(signal, "pthread_kill"):
            self._passed_on = True
            signal.pthread_kill(self._main, number)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Abandon the body at a request.

        Raises:
            Interrupted: there was a request, before or in the body.
        """
        self._may_interrupt = True
        try:
            if self.signal:
                raise Interrupted
            yield
        finally:
            self._may_interrupt = False


@contextmanager
def together(world: World, stop: StopRequest) -> Iterator[None]:
    """Abandon the body, which communicates with no other process, if any process has a request.

    All processes call it together, and leave it together.

    Raises:
        Interrupted: there was a request to stop, at any process.
    """
    with suppress(Interrupted), stop.interruptible():
        yield
    if any(world.largest(stop.signal)):
        raise Interrupted
