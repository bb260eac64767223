"""Server: an application on a socket, which stops when it is told to and loses nothing.

The first SIGTERM or SIGINT lets it finish what it took on: new requests are answered
503 meanwhile, then it closes.  A second one lets go of what waits.
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
    """Return a socket that has an address; it listens when the server runs.

    Args:
        host: name or number of an interface.
        port: 0 for any that is free.

    Raises:
        InputError: the address is taken, not this machine's, or may not be had.
    """
    place = f"{host}:{port}"
    if not 0 <= port <= _LAST_PORT:
        raise InputError("no such port", place=place, help=f"choose one from 0 to {_LAST_PORT}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
    except (OSError, OverflowError, UnicodeError) as error:
        problem = f"no address to serve at: {error}"
        raise InputError(problem, place=place, help="name an interface, as 127.0.0.1") from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        # Two could share an address that neither listens at.
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        raise InputError(
            f"cannot serve at this address: {error.strerror or error}",
            place=place,
            help="choose another with --host and --port; --port 0 takes any that is free",
        ) from error
    return made


class _Server(uvicorn.Server):
    """A server that finishes what was taken on before it closes."""

    def __init__(self, config: uvicorn.Config, service: Service, drain: float) -> None:
        super().__init__(config)
        self._service, self._drain = service, drain
        self._since: float | None = None
        self._hurried = False
        self.unfinished = 0
        """Sentences that were let go of."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Begin to stop at the first signal, and let go of what waits at the second."""
        # What waits is let go of at the next tick: a signal may come in the midst of a change.
        self._hurried = self._service.stopping
        self._service.stopping = True

    async def on_tick(self, counter: int) -> bool:
        """Say whether to close, ten times a second."""
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
    """Serve until told to stop by SIGTERM or SIGINT.

    Args:
        service: not running yet.
        made: what `bound` returned.
        drain: seconds to finish what was taken on, once told to stop.
        log_level: of the HTTP server's own log, which goes to stderr.
        started: called when requests are answered.

    Returns:
        Sentences that were taken on and not finished; 0 when all were.
    """
    server = _Server(_config(service, log_level, drain), service, drain)
    with service.running():
        if started is not None:
            started()
        server.run(sockets=[made])
    return server.unfinished


def _config(service: Service, log_level: str, drain: float) -> uvicorn.Config:
    """Return how the HTTP server goes about it."""
    return uvicorn.Config(
        make_app(service),
        log_level=log_level,
        access_log=log_level in ("debug", "info"),
        server_header=False,
        lifespan="off",
        ws="none",
        # The first that is sent away, itself counted.
        limit_concurrency=service.limits.connections + 1,
        timeout_graceful_shutdown=int(drain) + 1,
    )
