"""Run an application on a socket: answer while the model is opened, and shut down gracefully.

The socket answers at once.  A thread opens the model; until then `GET /health` has the status
`starting`, and translation requests get 503.  At the first SIGTERM or SIGINT the server finishes
accepted requests, responds to new ones with 503, and then closes.  A request is accepted if its
complete head has arrived at most 0.3 s after the signal: those sent before it are answered.  At a
second signal it drops the requests that still wait.

This module imports neither torch nor FastAPI, which take seconds; the thread does.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn

from ...plugin import send_json
from .access import restricted
from .limits import Limits
from .protocol.connection import guarded
from .protocol.errors import one_error
from .protocol.framing import MOST_HEAD

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from .service import Service

LOG = logging.getLogger("weft.serve")

_ARRIVING = 3
"""Ticks after a signal, 0.1 s each, in which the loop reads what was sent before the signal."""
_OTHER_FILES = 256
"""Open files that are not connections: libraries, checkpoints, and connections that end."""


class Front:
    """The application that the socket serves: that of the model, once it is open."""

    def __init__(self) -> None:
        """Begin without a model."""
        self.began = time.monotonic()
        self.service: Service | None = None
        self.failure: BaseException | None = None
        """Why the model could not be opened."""
        self.stopped = False
        """Whether the server has closed, so that a model opened now is not used."""
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to one request."""
        if self._app is not None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            status, content = self._starting(scope["path"])
            headers = [(b"retry-after", b"2"), (b"connection", b"close")]
            await send_json(send, status, content, headers)

    def _starting(self, path: str) -> tuple[int, dict[str, Any]]:
        """Return status and body of a response while the model is opened."""
        if path == "/health/live":
            return 200, {"status": "live"}
        if path == "/health":
            seconds = round(time.monotonic() - self.began, 3)
            state = {"status": "starting", "model": "", "waiting": 0, "seconds": seconds}
            return 503, state
        return 503, one_error("the server is starting", "retry in 2 seconds")

    def open(
        self,
        open_service: Callable[[], Service],
        stack: ExitStack,
        started: Callable[[Service], None],
    ) -> None:
        """Open the model and serve it; then measure whether compiled steps are faster."""
        try:
            service = open_service()
            from .app import make_app  # noqa: PLC0415 - imports FastAPI

            app = make_app(service)
            service.warm()
            if self.stopped:
                return
            stack.enter_context(service.running())
            self._app, self.service = app, service
            started(service)
        except BaseException as error:  # noqa: BLE001 - raised by `serve_until_told`
            self.failure = error
            return
        try:
            service.tune()
        except Exception:
            LOG.exception("measuring compiled steps failed; steps run uncompiled")


class _Server(uvicorn.Server):
    """A server that finishes accepted requests before it closes."""

    def __init__(self, config: uvicorn.Config, front: Any, drain: float) -> None:
        super().__init__(config)
        self._front, self._drain = front, drain
        self._since: float | None = None
        self._told = self._hurried = False
        self._ticks = 0
        self.unfinished = 0
        """Number of sentences that were dropped."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Begin to stop at the first signal; drop waiting requests at the second."""
        service = self._front.service
        if service is None:
            self.should_exit = True
            return
        # Drop them in the next tick: the signal may interrupt code that holds the queue's lock.
        self._hurried = self._told
        self._told = True

    async def on_tick(self, counter: int) -> bool:
        """Return whether to close; called ten times per second."""
        service = self._front.service
        if self._front.failure is not None:
            self.should_exit = True
        elif service is not None and self._told and not self.should_exit:
            self._ticks += 1
            now = time.monotonic()
            self._since = self._since or now
            late = self._hurried or now - self._since > self._drain
            service.stopping = late or self._ticks > _ARRIVING
            if late:
                self.unfinished += service.batcher.abandon()
            idle = service.stopping and not service.accepted and not service.batcher.busy
            if self._hurried or idle or self.unfinished:
                self.should_exit = True
        return await super().on_tick(counter)


def allow_files(connections: int) -> int:
    """Raise this process's limit of open files for so many connections; return how many fit."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return connections
    required = connections + _OTHER_FILES
    if soft < required:
        soft = required if hard == resource.RLIM_INFINITY else min(required, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(connections, max(1, soft - _OTHER_FILES))


@dataclass(frozen=True, slots=True)
class Stopped:
    """How a server stopped."""

    unfinished: int
    """Number of accepted sentences that were dropped."""
    busy: bool
    """Whether the thread that opens or compiles the model still runs; it cannot be interrupted."""


def serve_until_told(
    open_service: Callable[[], Service],
    listener: socket.socket,
    limits: Limits,
    *,
    token: str | None = None,
    origins: Sequence[str] = (),
    hosts: Sequence[str] | None = None,
    log_level: str = "warning",
    started: Callable[[Service], None] | None = None,
) -> Stopped:
    """Serve until SIGTERM or SIGINT.

    Args:
        open_service: opens the model and returns a service that is not running yet; called in
            another thread.
        listener: the socket that `bound` returned.
        limits: limits on connections.
        token: required in requests, except to /health; None requires none.
        origins: origins whose web pages may call the server.
        hosts: names that the header Host may have; None for any.
        log_level: log level of the HTTP server, which logs to stderr.
        started: called when the server is ready.

    Raises:
        InputError: the model cannot be opened or served.
    """
    fit = allow_files(limits.connections)
    if fit < limits.connections:
        LOG.warning("the limit of open files allows %s connections; see 'ulimit -n'", f"{fit:,}")
        limits = limits.model_copy(update={"connections": fit})
    front = Front()
    app = restricted(front, token=token, origins=origins, hosts=hosts)
    server = _Server(config_of(app, limits, log_level), front, limits.drain)
    with ExitStack() as stack:
        thread = threading.Thread(
            target=front.open,
            args=(open_service, stack, started or (lambda _: None)),
            name="weft-open",
            daemon=True,
        )
        thread.start()
        server.run(sockets=[listener])
        front.stopped = True
    if front.failure is not None:
        raise front.failure
    return Stopped(server.unfinished, thread.is_alive())


def config_of(app: ASGIApp, limits: Limits, log_level: str) -> uvicorn.Config:
    """Return the configuration of the HTTP server for an application."""
    return uvicorn.Config(
        app,
        log_level=log_level,
        access_log=log_level in ("debug", "info"),
        server_header=False,
        lifespan="off",
        ws="none",
        http=guarded(limits),
        h11_max_incomplete_event_size=MOST_HEAD,
        timeout_graceful_shutdown=int(limits.drain) + 1,
    )
