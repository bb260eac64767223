"""A look at something every so often, while this process does something else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
