"""The start of a server: it answers at once, and opens the model meanwhile."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from weft.extensions.serve.limits import Limits
from weft.extensions.serve.server import _Server, serve_until_told
from weft.extensions.serve.service import Service
from weft.runtime import api
from weft.runtime.system.http import bound
from weft.specs.findings import InputError

pytestmark = pytest.mark.integration

SECONDS = 20


class Started:
    """A server in this process, without signals."""

    def __init__(self, address: socket.socket) -> None:
        """Store the socket; no proxy of the environment is used."""
        self.url = "http://{}:{}".format(*address.getsockname()[:2])
        self.ready, self.ended = threading.Event(), threading.Event()
        self.stop: Callable[[], object] = self.ready.clear
        self.result: Any = None
        self.error: BaseException | None = None

    def call(self, path: str, body: bytes | None = None) -> tuple[int, Any, Any]:
        """Return status, JSON and headers of a response."""
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self.url + path, body, headers)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
                request, timeout=SECONDS
            ) as answer:
                return answer.status, json.load(answer), answer.headers
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error), error.headers


@contextmanager
def started(
    open_service: Callable[[], Service], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Started]:
    """Run a server in a thread; on exit, stop it as a signal does, and wait for it."""
    address = bound("127.0.0.1", 0)
    shown, servers = Started(address), list[_Server]()
    made = _Server.__init__

    def remember(self: _Server, *given: Any) -> None:
        made(self, *given)
        servers.append(self)

    monkeypatch.setattr(_Server, "__init__", remember)

    def run() -> None:
        try:
            shown.result = serve_until_told(
                open_service,
                address,
                Limits(drain=5.0),
                log_level="critical",
                started=lambda _: shown.ready.set(),
            )
        except InputError as error:
            shown.error = error
        shown.ended.set()

    thread = threading.Thread(target=run)
    thread.start()
    shown.stop = lambda: [one.handle_exit(signal.SIGTERM, None) for one in servers]
    try:
        yield shown
    finally:
        if thread.is_alive():
            shown.stop()
        thread.join(SECONDS)
        assert not thread.is_alive()


def test_it_answers_while_the_model_is_opened(
    model: api.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Health is `starting`, requests get 503 with Retry-After; then both are served."""
    go = threading.Event()

    def open_service() -> Service:
        assert go.wait(SECONDS)
        return Service(model, Limits())

    with started(open_service, monkeypatch) as server:
        health, live = server.call("/health"), server.call("/health/live")
        early = server.call("/translate", b'{"source": "sun"}')
        go.set()
        assert server.ready.wait(SECONDS)
        later = server.call("/health"), server.call("/translate", b'{"source": "sun"}')

    assert (health[0], health[1]["status"]) == (503, "starting")
    assert live[:2] == (200, {"status": "live"})
    assert early[0] == 503
    assert early[1]["errors"][0]["problem"] == "the server is starting"
    assert early[2]["retry-after"]
    assert (later[0][0], later[0][1]["status"]) == (200, "ready")
    assert health[1].keys() == later[0][1].keys()
    assert later[1][0] == 200
    assert server.result.unfinished == 0
    assert not server.result.busy


def test_it_answers_while_compiled_steps_are_measured(
    model: api.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A measurement takes minutes; one that fails changes nothing."""
    begun, go = threading.Event(), threading.Event()

    def tune(_: Service) -> None:
        begun.set()
        assert go.wait(SECONDS)
        raise RuntimeError("compiler")

    monkeypatch.setattr(Service, "tune", tune)
    with started(lambda: Service(model, Limits()), monkeypatch) as server:
        assert begun.wait(SECONDS)
        answers = [server.call("/translate", b'{"source": "sun"}')[0]]
        go.set()
        answers.append(server.call("/translate", b'{"source": "sun"}')[0])

    assert answers == [200, 200]


def test_a_model_that_cannot_be_opened_ends_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error is raised in the thread that serves."""

    def open_service() -> Service:
        raise InputError("no such checkpoint")

    with started(open_service, monkeypatch) as server:
        server.ended.wait(SECONDS)

    assert isinstance(server.error, InputError)


def test_a_signal_stops_a_server_that_is_starting(
    model: api.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller learns that the thread still runs; a model opened later is not served."""
    go, opened = threading.Event(), threading.Event()

    def open_service() -> Service:
        assert go.wait(SECONDS)
        opened.set()
        return Service(model, Limits())

    with started(open_service, monkeypatch) as server:
        assert server.call("/health")[0] == 503
        server.stop()
    go.set()

    assert opened.wait(SECONDS)
    assert server.result.busy
    assert not server.ready.is_set()


def test_the_server_is_imported_without_torch() -> None:
    """Importing torch and FastAPI takes seconds, in which no request would be answered."""
    code = (
        "import sys, weft.extensions.serve.server, weft.runtime.cli.checkpoints; "
        "print({'torch', 'fastapi', 'numpy'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "set()"
