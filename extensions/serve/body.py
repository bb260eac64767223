"""Request bodies: read completely, within limits on size, time, nesting and number of values.

A wrong body must cost little.  Validation makes an object for each error, so a body of a million
wrong values would take a gigabyte of memory.  Therefore a body is scanned before it is parsed, and
the scan stops at the first limit that is exceeded.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from ...plugin import RepeatedKeyError, distinct_keys
from .limits import DISCARDED, Limits

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_BODIES = 64
"""Bodies of the maximum size that may be in memory at once; further requests get 503."""
DEPTH = 16
"""Maximum nesting of a body; valid requests have 4."""
EXAMPLE = 'send an object, such as {"source": "A dog runs."}'
"""Help for a body that is not an object."""
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.?)*+"?|[\[\]{},]', re.DOTALL)
"""A string, a bracket or a comma.  Nothing is matched twice, so a scan takes linear time."""
_TOKENS = 5
"""Tokens for each value of valid JSON: a key, a string, a comma and two brackets."""

Refuse = Callable[[int, str, str], Response]
"""Takes status, problem and help text; returns a response."""


class BodyError(Exception):
    """A body that cannot be parsed within the limits."""

    def __init__(self, status: int, problem: str, help_: str) -> None:
        """Store the status of the response, what is wrong, and how to fix it."""
        super().__init__(status, problem, help_)
        self.status, self.problem, self.help = status, problem, help_


def most_values(limits: Limits) -> int:
    """Return the maximum number of JSON values in a body: enough for every valid request."""
    return limits.texts * (limits.phrases + 8) + limits.phrases + 100


def parse(body: bytes, limits: Limits) -> Any:
    """Parse a JSON body.

    Raises:
        BodyError: it is not JSON in UTF-8, an object has a key twice, or it has too many values or
            too deep nesting.
    """
    _check_shape(body, limits)
    try:
        return json.loads(body.decode("utf-8-sig"), object_pairs_hook=distinct_keys)
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at character {error.pos}"
    except UnicodeDecodeError:
        reason = "it is not encoded in UTF-8"
    except RepeatedKeyError as error:
        reason = str(error)
    except ValueError:
        reason = "a number has too many digits"
    raise BodyError(400, f"the body is not valid JSON: {reason}", EXAMPLE)


def _check_shape(body: bytes, limits: Limits) -> None:
    """Refuse a body with too many values or too deep nesting, without parsing it."""
    most = most_values(limits)
    values, depth = 1, 0
    for tokens, match in enumerate(_TOKEN.finditer(body)):
        mark = body[match.start()]
        if mark in b"[{":
            values, depth = values + 1, depth + 1
        elif mark in b"]}":
            depth -= 1
        elif mark in b",":
            values += 1
        if depth > DEPTH:
            raise BodyError(400, f"the body is nested more than {DEPTH} deep", EXAMPLE)
        if values > most or tokens > _TOKENS * most:
            raise BodyError(
                422,
                f"the body has more than {most:,} values",
                f"send at most {limits.texts:,} texts at a time",
            )


class BodyLimit:
    """Responds with 413 to a body that is too large, and with 408 to one that is too slow."""

    def __init__(self, app: ASGIApp, *, limits: Limits, refuse: Refuse) -> None:
        """Wrap an application.

        Args:
            app: called for requests with a complete body within the limit.
            limits: maximum bytes of a body, and times to send it.
            refuse: makes the response for other requests.
        """
        self._app, self._refuse, self._limits = app, refuse, limits
        self._most, self._held = limits.body, 0

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
        parts = list[bytes]()
        try:
            answer = await self._read(receive, parts)
            if answer is not None:
                await answer(scope, receive, send)
                return
            await self._app(scope, _again(b"".join(parts), receive), send)
        except _DisconnectedError:
            return
        finally:
            self._held -= sum(map(len, parts))

    async def _read(self, receive: Receive, parts: list[bytes]) -> Response | None:
        """Read the body into `parts`; return a response if it is refused."""
        try:
            async with asyncio.timeout(self._limits.upload):
                return await self._read_parts(receive, parts)
        except TimeoutError:
            answer = self._refuse(408, "the body did not arrive in time", self._limits.pace)
            answer.headers["connection"] = "close"
            return answer

    async def _read_parts(self, receive: Receive, parts: list[bytes]) -> Response | None:
        size, more = 0, True
        while more and size <= DISCARDED * self._most:
            async with asyncio.timeout(self._limits.stall):
                message = await receive()
            if message["type"] == "http.disconnect":
                raise _DisconnectedError
            part = message.get("body", b"")
            size += len(part)
            if size <= self._most:
                parts.append(part)
                self._held += len(part)
            if self._held > _BODIES * self._most:
                return self._too_busy()
            more = message.get("more_body", False)
        return self._too_large() if size > self._most else None

    def _too_large(self) -> Response:
        answer = self._refuse(
            413,
            f"the body has more than {self._most:,} bytes",
            "send fewer texts at a time",
        )
        answer.headers["connection"] = "close"
        return answer

    def _too_busy(self) -> Response:
        answer = self._refuse(503, "too many bodies arrive at once", "retry later")
        answer.headers.update({"connection": "close", "retry-after": "5"})
        return answer


class _DisconnectedError(Exception):
    """The client disconnected before it had sent its body."""


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields a body once, and then the following messages."""
    replayed = False

    async def replay() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
