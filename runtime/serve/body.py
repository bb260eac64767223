"""Body: a request's body is read whole before anything else, and only so much of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECONDS = 30.0
"""How long a client may take to send a body."""
_PATIENCE = 16
"""Times the limit that is read and thrown away, so that the client hears why."""

Refuse = Callable[[int, str, str], Response]
"""From status, problem and way out to an answer."""


class BodyLimit:
    """Answers 413 for a body that is too large, and 408 for one that does not come."""

    def __init__(self, app: ASGIApp, *, most: int, refuse: Refuse) -> None:
        """Stand before an application.

        Args:
            app: sees requests whose bodies are small enough, and come at once.
            most: bytes of a body.
            refuse: makes the answer for others.
        """
        self._app, self._most, self._refuse = app, most, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        told = headers.get(b"content-length", b"")
        # Nothing was sent yet by a client that asks first, so nothing needs to be read.
        if b"expect" in headers and told.isdigit() and int(told) > self._most:
            await self._too_large()(scope, receive, send)
            return
        try:
            async with asyncio.timeout(SECONDS):
                body, size, cancelled = await self._read(receive)
        except TimeoutError:
            answer = self._refuse(
                408, f"the body did not come within {SECONDS:g} seconds", "send it at once"
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
        """Return the body, how large it is, and whether the client has gone."""
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
    """Return a `receive` that gives a body once, and then what comes next."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
