"""Which requests are accepted at the signal to stop: accepted means answered."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import uvicorn
from weft.extensions.serve.server import _ARRIVING, _Server

Served = Callable[..., AbstractContextManager[Any]]


@pytest.mark.integration
def test_a_request_whose_body_arrives_after_the_signal_is_answered(served: Served) -> None:
    """Its head had arrived before; one that begins afterwards gets 503."""
    with served() as client:
        service = client.service
        began = asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            yield b'{"source": '
            await began.wait()
            yield b'"sun"}'

        async def first(http: httpx.AsyncClient) -> int:
            headers = {"content-type": "application/json"}
            return (await http.post("/translate", content=body(), headers=headers)).status_code

        async def later(http: httpx.AsyncClient) -> int:
            while not service.accepted:
                await asyncio.sleep(0.001)
            service.stopping = True
            refused = await http.post("/translate", json={"source": "moon"})
            assert service.accepted == 1
            began.set()
            return refused.status_code

        assert client.together(first, later) == [200, 503]
        assert service.accepted == 0


def test_the_server_reads_what_was_sent_before_the_signal_and_waits_for_it() -> None:
    """It stops to accept some ticks after the signal, and closes when all accepted are answered."""
    batcher = SimpleNamespace(busy=False)
    service = SimpleNamespace(batcher=batcher, stopping=False, accepted=1)
    front = SimpleNamespace(service=service, failure=None)
    server = _Server(uvicorn.Config(lambda: None), front, 60.0)

    async def ticks(count: int) -> bool:
        return [await server.on_tick(number) for number in range(1, count + 1)][-1]

    server.handle_exit(signal.SIGTERM, None)
    assert not service.stopping
    assert not asyncio.run(ticks(_ARRIVING))
    assert not service.stopping, "sockets may still have what was sent before"
    assert not asyncio.run(ticks(1))
    assert service.stopping
    service.accepted = 0
    assert asyncio.run(ticks(1))
