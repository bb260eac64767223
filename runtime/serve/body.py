"""Middleware that reads the complete request body first and limits its size."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECONDS = 30.0
"""Seconds that a client may take to send a body."""
_PATIENCE = 16
"""An oversized body is read and discarded up to this multiple of the limit.

Otherwise the client would not receive the error response.
"""

Refuse = Callable[[int, str, str], Response]
"""Takes status, problem and help text; returns a response."""


class BodyLimit:
    """Responds with 413 to a body that is too large, and with 408 to one that is too slow."""

    def __init__(self, app: ASGIApp, *, most: int, refuse: Refuse) -> None:
        """Wrap an application.

        Args:
            app: called for requests with a complete body within the limit.
            most: maximum bytes of a body.
            refuse: makes the response for other requests.
        """
        self._app, self._most, self._refuse = app, most, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"")
        # A client that sends "Expect" has not sent its body yet, so nothing needs to be read.
        if b"expect" in headers and length.isdigit() and int(length) > self._most:
            await self._too_large()(scope, receive, send)
            return
        try:
            async with asyncio.timeout(SECONDS):
                body, size, cancelled = await self._read(receive)
        except TimeoutError:
            answer = self._refuse(
                408, f"the body did not arrive within {SECONDS:g} seconds", "send it faster"
            )
            await answer(scope, receive, send)
            return
        if cancelled:
            return
        if size > self._most:
            await self._too_large()(scope, receive, send)
            return
        await self._app(scope, _again(body, receive), send)

    async def _read(self, receive: Receive) -> tuple[bytes, int, bool]:
        """Return the body, its size, and whether the client disconnected."""
        parts, size, more = list[bytes](), 0, True
        while more and size <= _PATIENCE * self._most:
            message = await receive()
            if message["type"] == "http.disconnect":
                return b"", size, True
            part = message.get("body", b"")
            size += len(part)
            if size <= self._most:
                parts.append(part)
            more = message.get("more_body", False)
        return b"".join(parts), size, False

    def _too_large(self) -> Response:
        answer = self._refuse(
            413,
            f"the body has more than {self._most:,} bytes",
            "send fewer texts at a time",
        )
        answer.headers["connection"] = "close"
        return answer


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields a body once, and then the following messages."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
