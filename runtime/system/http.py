"""What every server of Weft needs: a listening socket, and a short answer without a framework."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...specs.findings import InputError

if TYPE_CHECKING:
    from starlette.types import Send

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
    location = f"{host}:{port}"
    if not 0 <= port <= _LAST_PORT:
        raise InputError(
            f"port {port} is out of range",
            location=location,
            help=f"use a port from 0 to {_LAST_PORT}",
        )
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, OverflowError, UnicodeError) as error:
        problem = f"cannot resolve the address: {error}"
        raise InputError(
            problem, location=location, help="use an address such as 127.0.0.1"
        ) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # Listen at once: two sockets can bind the same address as long as neither listens.
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise InputError(
            f"cannot serve at this address: {error.strerror or error}",
            location=location,
            help="set another with --host and --port; --port 0 takes any free port",
        ) from error
    return listener


async def send_json(
    send: Send, status: int, content: Any, headers: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    """Send a complete JSON response without FastAPI, whose import takes seconds.

    Args:
        send: of the request.
        status: status of the response.
        content: value of the body.
        headers: further headers.
    """
    body = json.dumps(content).encode()
    every = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": every})
    await send({"type": "http.response.body", "body": body})
