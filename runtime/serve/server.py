"""Run an application on a socket, with graceful shutdown.

At the first SIGTERM or SIGINT the server finishes accepted requests, responds to new ones
with 503, and then closes.  At a second signal it drops the requests that still wait.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from types import FrameType

import uvicorn

from ...specs.findings import InputError
from .app import make_app
from .limits import Limits
from .protocol.connection import guarded
from .protocol.framing import MOST_HEAD
from .service import Service

LOG = logging.getLogger("weft.serve")

_BACKLOG = 2048
_LAST_PORT = 65535
_OTHER_FILES = 256
"""Open files that are not connections: libraries, checkpoints, and connections that end."""


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


def allow_files(connections: int) -> int:
    """Raise this process's limit of open files for so many connections; return how many fit."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return connections
    wanted = connections + _OTHER_FILES
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(connections, max(1, soft - _OTHER_FILES))


def serve_until_told(
    service: Service,
    made: socket.socket,
    *,
    log_level: str = "warning",
    started: Callable[[], None] | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT.

    Args:
        service: a service that is not running yet.
        made: the socket that `bound` returned.
        log_level: log level of the HTTP server, which logs to stderr.
        started: called when the server is ready.

    Returns:
        Number of accepted sentences that were dropped.
    """
    limits = service.limits
    fit = allow_files(limits.connections)
    if fit < limits.connections:
        LOG.warning("the limit of open files allows %s connections; see 'ulimit -n'", f"{fit:,}")
        limits = limits.model_copy(update={"connections": fit})
    server = _Server(_config(service, log_level, limits), service, limits.drain)
    with service.running():
        if started is not None:
            started()
        server.run(sockets=[made])
    return server.unfinished


def _config(service: Service, log_level: str, limits: Limits) -> uvicorn.Config:
    """Return the configuration of the HTTP server."""
    return uvicorn.Config(
        make_app(service),
        log_level=log_level,
        access_log=log_level in ("debug", "info"),
        server_header=False,
        lifespan="off",
        ws="none",
        http=guarded(limits),
        h11_max_incomplete_event_size=MOST_HEAD,
        timeout_graceful_shutdown=int(limits.drain) + 1,
    )
