"""Signals of a server: the first finishes accepted requests, the second drops waiting ones."""

from __future__ import annotations

import asyncio
import signal
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from weft.extensions.serve.app import make_app
from weft.extensions.serve.batcher import Batcher, ClosedError
from weft.extensions.serve.limits import Limits
from weft.extensions.serve.server import _Server, allow_files, config_of
from weft.extensions.serve.service import Service
from weft.runtime import api
from weft.runtime.system.http import bound


@pytest.mark.integration
def test_a_connection_over_the_limit_is_refused(model: api.Model) -> None:
    """It gets 503 if the others have just been opened; closing one makes room for another."""
    service = Service(model, Limits(connections=2))

    async def statuses() -> list[bytes]:
        server = uvicorn.Server(config_of(make_app(service), service.limits, "critical"))
        address = bound("127.0.0.1", 0)
        serving = asyncio.create_task(server.serve(sockets=[address]))
        while not server.started:
            await asyncio.sleep(0.01)

        async def ask() -> bytes:
            reader, writer = await asyncio.open_connection(*address.getsockname())
            writer.write(b"GET /health HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
            line = await reader.readline()
            await reader.read()
            writer.close()
            return line

        idle = [await asyncio.open_connection(*address.getsockname()) for _ in range(2)]
        await asyncio.sleep(0.05)
        found = [await ask()]
        cancelled, stays = (writer for _, writer in idle)
        cancelled.close()
        await cancelled.wait_closed()
        await asyncio.sleep(0.05)
        found.append(await ask())
        stays.close()
        server.should_exit = True
        await serving
        return found

    with service.running():
        full, free = asyncio.run(statuses())

    assert full.startswith(b"HTTP/1.1 503")
    assert free.startswith(b"HTTP/1.1 200")


async def nothing(*_: Any) -> None:
    """Be an application."""


@pytest.mark.parametrize(
    ("signals", "drain", "ends"), [(1, 60.0, False), (2, 60.0, True), (1, -1.0, True)]
)
def test_waiting_requests_are_dropped_at_the_second_signal_or_after_draining(
    signals: int, drain: float, *, ends: bool
) -> None:
    """Waiting requests get an exception and are counted, but not inside the signal handler."""
    batcher: Any = Batcher[int, int, int](lambda *_: [], size=4, wait=0.0, capacity=9)
    batcher._thread = SimpleNamespace(is_alive=lambda: True)  # no worker processes the queue
    jobs = [batcher.submit(1, [1, 2, 3]), batcher.submit(2, [4])]
    service: Any = SimpleNamespace(batcher=batcher, stopping=False, accepted=0)
    front = SimpleNamespace(service=service, failure=None)
    server = _Server(uvicorn.Config(nothing), front, drain)

    for _ in range(signals):
        server.handle_exit(signal.SIGTERM, None)
    waiting = batcher.waiting

    async def ticks() -> bool:
        return [await server.on_tick(number) for number in range(1, 5)][-1]

    stopped = asyncio.run(ticks())

    assert waiting == 4
    assert service.stopping
    assert stopped == ends
    assert server.unfinished == (4 if ends else 0)
    for job in jobs:
        assert job.future.done() == ends
        assert not ends or isinstance(job.future.exception(), ClosedError)


@pytest.mark.parametrize(
    ("soft", "hard", "fits", "raised"),
    [(1024, 4096, 1000, 1256), (1024, 1024, 768, 1024), (9999, 9999, 1000, None), (64, 64, 1, 64)],
)
def test_every_connection_has_an_open_file(
    soft: int, hard: int, fits: int, raised: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise accepting would fail for a second whenever the limit of files is reached."""
    resource = pytest.importorskip("resource")
    asked: list[int] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: asked.append(given[0]))

    assert allow_files(1000) == fits
    assert asked == ([] if raised is None else [raised])
