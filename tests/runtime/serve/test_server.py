"""A server's signals: the first finishes what was taken on, the second lets go of what waits."""

from __future__ import annotations

import asyncio
import signal
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from weft.runtime.serve.batcher import Batcher, ClosedError
from weft.runtime.serve.server import _Server


async def nothing(*_: Any) -> None:
    """Be an application."""


@pytest.mark.parametrize(
    ("signals", "drain", "ends"), [(1, 60.0, False), (2, 60.0, True), (1, -1.0, True)]
)
def test_what_waits_is_let_go_of_at_the_second_signal_or_after_the_drain(
    signals: int, drain: float, *, ends: bool
) -> None:
    """Callers hear of it, and it is counted; not inside the signal, which may come at any time."""
    batcher: Any = Batcher[int, int, int](lambda *_: [], size=4, wait=0.0, room=9)
    batcher._thread = SimpleNamespace(is_alive=lambda: True)  # nobody works on what waits
    jobs = [batcher.submit(1, [1, 2, 3]), batcher.submit(2, [4])]
    service: Any = SimpleNamespace(batcher=batcher, stopping=False)
    server = _Server(uvicorn.Config(nothing), service, drain)

    for _ in range(signals):
        server.handle_exit(signal.SIGTERM, None)
    waiting = batcher.waiting
    stopped = asyncio.run(server.on_tick(1))

    assert waiting == 4
    assert service.stopping
    assert stopped == ends
    assert server.unfinished == (4 if ends else 0)
    for job in jobs:
        assert job.future.done() == ends
        assert not ends or isinstance(job.future.exception(), ClosedError)
