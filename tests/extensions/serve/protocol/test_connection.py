"""Connections of slow and hostile clients: they end, and they do not shut others out."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from weft.extensions.serve.limits import Limits
from weft.extensions.serve.protocol import connection as module
from weft.extensions.serve.protocol.connection import GuardedProtocol, guarded

SECONDS = 20
GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
SHORT = {"head": 0.08, "stall": 0.08, "upload": 0.08, "idle": 0.08}
LONG = {"head": 60.0, "stall": 60.0, "upload": 60.0, "idle": 60.0}
SLOW = (
    b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\nabc",
    b"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
)


class Server:
    """A server on this machine, and its connections."""

    def __init__(self, server: uvicorn.Server, address: Any) -> None:
        """Store the server and its address."""
        self.server, self.address = server, address
        self.writers: list[asyncio.StreamWriter] = []

    @property
    def connections(self) -> int:
        """Number of connections that count towards the limit."""
        return len(self.server.server_state.connections)

    async def opened(self, sent: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection, send some bytes, and wait until the server has the connection."""
        reader, writer = await asyncio.open_connection(*self.address)
        self.writers.append(writer)
        writer.write(sent)
        await asyncio.sleep(0.01)
        return reader, writer

    async def answer(self, sent: bytes) -> bytes:
        """Return everything that the server sends on a new connection until it closes it."""
        reader, writer = await self.opened(sent)
        with contextlib.closing(writer):
            return await asyncio.wait_for(reader.read(), SECONDS)


def served(scene: Callable[[Server], Awaitable[Any]], app: Any = None, **limits: Any) -> Any:
    """Run a scene with a server; its application responds with `yes` after reading the body."""

    async def run() -> Any:
        async def reading(_: Any, receive: Any, send: Any) -> None:
            while (message := await receive())["type"] == "http.request":
                if not message["more_body"]:
                    headers = [(b"content-length", b"3")]
                    await send({"type": "http.response.start", "status": 200, "headers": headers})
                    await send({"type": "http.response.body", "body": b"yes"})
                    return

        config = uvicorn.Config(
            app or reading,
            http=guarded(Limits(**{**LONG, **limits})),
            lifespan="off",
            ws="none",
            log_level="critical",
            timeout_graceful_shutdown=1,
        )
        made = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(config)
        config.load()
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(
            lambda: config.http_protocol_class(
                config=config, server_state=server.server_state, app_state={}
            ),
            sock=made,
        )
        shown = Server(server, made.getsockname())
        try:
            return await scene(shown)
        finally:
            listening.close()
            for one in (*server.server_state.connections, *shown.writers):
                one.transport.abort()
            await asyncio.sleep(0.01)

    return asyncio.run(run())


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost:", GET + b"GET / HT"])
def test_an_incomplete_head_ends(sent: bytes) -> None:
    """A silent connection is closed; one with an unfinished head gets 408 first."""
    answer = served(lambda server: server.answer(sent), **SHORT)

    assert (b"HTTP/1.1 408" in answer) == bool(sent)
    assert (b"HTTP/1.1 200" in answer) == sent.startswith(GET)


def test_bytes_that_trickle_do_not_extend_the_time_for_a_head() -> None:
    """The time counts from the first byte, not from the last."""

    async def scene(server: Server) -> bytes:
        reader, writer = await server.opened()
        reading = asyncio.create_task(reader.read())
        for byte in GET[:-1] * 50:
            if reading.done():
                break
            writer.write(bytes([byte]))
            await asyncio.sleep(0.01)
        writer.close()
        return await asyncio.wait_for(reading, SECONDS)

    assert served(scene, **SHORT).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("sent", SLOW)
def test_a_body_that_stops_ends_the_connection(sent: bytes) -> None:
    """Even if the application waits for the body forever."""
    assert served(lambda server: server.answer(sent), **SHORT) == b""


def test_an_idle_connection_is_closed() -> None:
    """After its response."""
    answer = served(lambda server: server.answer(GET), **{**LONG, "idle": 0.05})

    assert answer.startswith(b"HTTP/1.1 200")


def test_a_client_that_does_not_read_is_cut() -> None:
    """A response that fills the buffers would otherwise be kept forever."""
    large = b"a" * 2**20

    async def app(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(64):
            await send({"type": "http.response.body", "body": large, "more_body": True})

    async def scene(server: Server) -> int:
        _, writer = await server.opened(GET)
        writer.transport.pause_reading()
        while server.connections:
            await asyncio.sleep(0.01)
        writer.transport.abort()
        return server.connections

    assert served(scene, app, **SHORT) == 0


def test_a_slow_answer_is_no_idle_connection() -> None:
    """While the application works, no time-out of the connection applies."""

    async def app(_: Any, __: Any, send: Any) -> None:
        await asyncio.sleep(0.3)
        headers = [(b"connection", b"close")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"late"})

    assert b"late" in served(lambda server: server.answer(GET + GET[:9]), app, **SHORT)


def test_silent_connections_do_not_shut_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is replaced; the number of connections stays within the limit."""
    monkeypatch.setattr(module, "_GRACE", 0.0)

    async def scene(server: Server) -> list[bytes]:
        silent = [await server.opened() for _ in range(4)]
        _, unfinished = await server.opened(b"GET / HTTP/1.1\r\n")
        answers = [await server.answer(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))]
        assert server.connections <= 5
        for _, writer in [*silent, (None, unfinished)]:
            writer.close()
        return answers

    for answer in served(scene, connections=5):
        assert answer.startswith(b"HTTP/1.1 200")


def test_idle_connections_are_replaced_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before silent ones, the oldest idle one first; a connection with a request never."""
    monkeypatch.setattr(module, "_GRACE", 0.0)
    go = asyncio.Event()

    async def app(scope: Any, _: Any, send: Any) -> None:
        if scope["path"] == "/wait":
            await go.wait()
        headers = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body"})

    async def scene(server: Server) -> list[str]:
        order: list[str] = []

        async def watch(name: str, reader: asyncio.StreamReader) -> None:
            with contextlib.suppress(ConnectionError):
                await reader.read()
            order.append(name)

        watched = []
        for name, sent in {
            "silent": b"",
            "busy": GET.replace(b"/ ", b"/wait "),
            "idle": GET,
            "later": GET,
        }.items():
            reader, writer = await server.opened(sent)
            watched.append((asyncio.create_task(watch(name, reader)), writer))
        for count in range(1, 4):
            await server.opened(GET.replace(b"/ ", b"/wait "))
            while len(order) < count:
                await asyncio.sleep(0.01)
        refused = await server.answer(GET)
        assert refused.startswith(b"HTTP/1.1 503")
        assert b"retry-after" in refused
        go.set()
        for task, writer in watched:
            writer.close()
            await task
        return order

    assert served(scene, app, connections=4)[:3] == ["idle", "later", "silent"]


def test_a_connection_between_two_requests_is_not_replaced_at_once() -> None:
    """A good client sends its next request within a second; until then, a new one gets 503."""

    async def scene(server: Server) -> list[bytes]:
        reader, writer = await server.opened(GET)
        first = await reader.readuntil(b"yes")
        refused = await server.answer(GET)
        writer.write(GET)
        return [first, refused, await reader.readuntil(b"yes")]

    first, refused, second = served(scene, connections=1)

    assert first == second
    assert refused.startswith(b"HTTP/1.1 503")


def test_a_client_that_resets_its_connection_raises_nothing() -> None:
    """Half-closing a connection fails if the client is gone."""

    async def scene(server: Server) -> list[Any]:
        errors: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, given: errors.append(given))
        reader, _ = await server.opened()
        [one] = server.server.server_state.connections

        def gone() -> None:
            raise OSError(107, "Transport endpoint is not connected")

        one.transport.write_eof = gone
        one.data_received(b"wrong\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), SECONDS)
        assert one.transport.is_closing()
        return errors

    assert served(scene) == []


@pytest.mark.parametrize(
    "wrong",
    [
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nabcde",
        b"POST / HTTP/1.1\nHost: a\n\n",
        b"POST / HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x\r\nabcde\r\n",
    ],
)
def test_an_ambiguous_request_gets_400_and_its_connection_is_closed(wrong: bytes) -> None:
    """A request after it is not answered; a request before it is."""

    async def scene(server: Server) -> list[bytes]:
        return [await server.answer(wrong + GET), await server.answer(GET + wrong + GET)]

    alone, second = served(scene)

    assert alone.startswith(b"HTTP/1.1 400")
    assert b"connection: close" in alone
    assert b'"errors": [{"place": "", "problem": "malformed HTTP request: ' in alone
    assert alone.count(b"HTTP/1.1 ") == 1
    assert second.startswith(b"HTTP/1.1 200")
    assert second.count(b"HTTP/1.1 ") == 2
    assert b"HTTP/1.1 400" in second


def test_pipelined_requests_are_answered_in_order() -> None:
    """All of them, as long as they are well-formed."""

    async def scene(server: Server) -> bytes:
        reader, writer = await server.opened(GET * 20)
        with contextlib.closing(writer):
            return b"".join([await reader.readuntil(b"yes") for _ in range(20)])

    assert served(scene).count(b"HTTP/1.1 200") == 20


def test_refused_connections_do_not_count_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that keeps sending after its refusal is cut after `LINGER` seconds."""
    monkeypatch.setattr(module, "LINGER", 0.05)

    async def scene(server: Server) -> int:
        reader, writer = await server.opened(b"wrong\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400")
        counted = server.connections
        with contextlib.suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(b"a" * 100)
                await writer.drain()
                await asyncio.sleep(0.01)
        return counted

    assert served(scene, **SHORT) == 0


def test_the_class_belongs_to_its_limits() -> None:
    """Two servers in one process have separate limits."""
    one, other = guarded(Limits(connections=1)), guarded(Limits(connections=2))

    assert issubclass(one, GuardedProtocol)
    assert issubclass(other, GuardedProtocol)
    assert (one.limits.connections, other.limits.connections) == (1, 2)
    assert one.lingering is not other.lingering
