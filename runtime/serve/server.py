"""Run an application on a socket, with graceful shutdown.

At the first SIGTERM or SIGINT the server finishes accepted requests, responds to new ones
with 503, and then closes.  At a second signal it drops the requests that still wait.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from types import FrameType

import uvicorn

from ...specs.findings import InputError
from .app import make_app
from .service import Service

_BACKLOG = 2048
_LAST_PORT = 65535


def bound(host: str, port: int) -> socket.socket:
    """Return a listening socket at an address.

    Args:
        host: name or address of an interface.
        port: 0 for any free port.

    Raises:
        InputError: the address is in use, not on this machine, or not permitted.
    """
    place = f"{host}:{port}"
    if not 0 <= port <= _LAST_PORT:
        raise InputError(
            f"port {port} is out of range", place=place, help=f"use a port from 0 to {_LAST_PORT}"
        )
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
    except (OSError, OverflowError, UnicodeError) as error:
        problem = f"cannot resolve the address: {error}"
        raise InputError(problem, place=place, help="use an address such as 127.0.0.1") from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        # Listen at once: two sockets can bind the same address as long as neither listens.
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        raise InputError(
            f"cannot serve at this address: {error.strerror or error}",
            place=place,
            help="set another with --host and --port; --port 0 takes any free port",
        ) from error
    return made


class _Server(uvicorn.Server):
    """A server that finishes accepted requests before it closes."""

    def __init__(self, config: uvicorn.Config, service: Service, drain: float) -> None:
        super().__init__(config)
        self._service, self._drain = service, drain
        self._since: float | None = None
        self._hurried = False
        self.unfinished = 0
        """Number of sentences that were dropped."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Begin to stop at the first signal; drop waiting requests at the second."""
        # Drop them in the next tick: the signal may interrupt code that holds the queue's lock.
        self._hurried = self._service.stopping
        self._service.stopping = True

    async def on_tick(self, counter: int) -> bool:
        """Return whether to close; called ten times per second."""
        if self._service.stopping and not self.should_exit:
            now = time.monotonic()
            self._since = self._since or now
            if self._hurried or now - self._since > self._drain:
                self.unfinished += self._service.batcher.abandon()
            if self._hurried or not self._service.batcher.busy or self.unfinished:
                self.should_exit = True
        return await super().on_tick(counter)


def serve_until_told(
    service: Service,
    made: socket.socket,
    *,
    drain: float = 30.0,
    log_level: str = "warning",
    started: Callable[[], None] | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT.

    Args:
        service: a service that is not running yet.
        made: the socket that `bound` returned.
        drain: seconds to finish accepted requests after the signal.
        log_level: log level of the HTTP server, which logs to stderr.
        started: called when the server is ready.

    Returns:
        Number of accepted sentences that were dropped.
    """
    server = _Server(_config(service, log_level, drain), service, drain)
    with service.running():
        if started is not None:
            started()
        server.run(sockets=[made])
    return server.unfinished


def _config(service: Service, log_level: str, drain: float) -> uvicorn.Config:
    """Return the configuration of the HTTP server."""
    return uvicorn.Config(
        make_app(service),
        log_level=log_level,
        access_log=log_level in ("debug", "info"),
        server_header=False,
        lifespan="off",
        ws="none",
        # uvicorn rejects a connection once this count, including it, is reached.
        limit_concurrency=service.limits.connections + 1,
        timeout_graceful_shutdown=int(drain) + 1,
    )
