"""Connections with time-outs in every state, and strict framing.

uvicorn's protocol reads requests with h11 and has one time-out, between requests.  The class here
adds the others.  A timer looks at each connection about once per second:

    reading a head    `head` seconds in all, then 408, or no response if no byte came
    reading a body    `stall` seconds without a byte, `upload` in all; `BodyLimit` responds with 408
    responding        `stall` seconds in which the client reads nothing, `upload` at the end
    idle              `idle` seconds until the next request

If there are too many connections, a new one replaces one that has waited for a second: the oldest
that is idle after a response, or else the oldest whose head is incomplete.
"""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..limits import DISCARDED, Limits
from .errors import one_error
from .framing import Framing

LINGER = 2.0
"""Seconds to read and discard what a client still sends after an error response.

Closing at once would reset the connection, and the client might not receive the response.
"""
_LINGERING = 100
"""Maximum connections that are kept open for that."""
_GRACE = 1.0
"""Seconds for which a connection without a request is not replaced."""
_TICK = 1.0
_HELP = "see https://www.rfc-editor.org/rfc/rfc9112"


class GuardedProtocol(H11Protocol):
    """One connection; `guarded` makes the class for given limits."""

    limits: ClassVar[Limits]
    lingering: ClassVar[set[GuardedProtocol]]

    def connection_made(self, transport: Any) -> None:
        """Start the timer; if there are too many connections, replace one, or refuse this one."""
        self.timeout_keep_alive = self.limits.idle  # type: ignore[assignment] # seconds of a timer
        # A body that is a little too large is read, so that the client receives the answer.
        self._framing = Framing(DISCARDED * self.limits.body)
        self.since = self.progress = self.loop.time()
        self._ending = self._unread = 0.0
        self._written = 0
        super().connection_made(transport)
        limits = self.limits
        shortest = min(limits.head, limits.stall, limits.upload, limits.idle)
        self._tick = min(_TICK, shortest / 4)
        self._timer = self.loop.call_later(self._tick, self._check)
        if len(self.connections) > limits.connections and not self._replace_other():
            help_ = "retry in 5 seconds, or close idle connections"
            self.refuse(503, "there are too many connections", help_)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._timer.cancel()
        self._unset_keepalive_if_required()
        self.lingering.discard(self)
        super().connection_lost(exc)

    @property
    def waiting(self) -> bool:
        """Whether the connection has no request, so that another may replace it."""
        request: Any = self.cycle
        answering = request is not None and not request.response_complete
        return not (answering or self._framing.inside or self.transport.is_closing())

    @property
    def incomplete(self) -> bool:
        """Whether the head of the first request, or of the next, is awaited and not complete."""
        request: Any = self.cycle
        return request is None or self._framing.begun

    def _replace_other(self) -> bool:
        """Close the connection that has waited longest; return False if there is none."""
        old = self.loop.time() - _GRACE
        others = [
            (connection.incomplete, connection.progress, id(connection), connection)
            for connection in self.connections
            if isinstance(connection, GuardedProtocol)
            and connection is not self
            and connection.waiting
            if connection.since < old
        ]
        if not others:
            return False
        min(others)[-1].close()
        return True

    def close(self) -> None:
        """Close the connection, which has no request."""
        self.connections.discard(self)
        self.timeout_keep_alive_handler()

    def data_received(self, data: bytes) -> None:
        """Pass strictly framed bytes to uvicorn; refuse others, and close the connection."""
        self.progress = self.loop.time()
        if self._ending or self.transport.is_closing():
            return
        begun = self._framing.begun
        accepted = self._framing.feed(data)
        if self._framing.begun and not begun:
            self.since = self.progress
        self._unset_keepalive_if_required()
        if accepted:
            super().data_received(accepted)
        if self._framing.error is not None:
            self._refuse_framing()

    def _refuse_framing(self) -> None:
        """Refuse a malformed request, after the response to the one before it."""
        error = self._framing.error
        request: Any = self.cycle
        answering = request is not None and not request.response_complete
        if error is not None and not (answering and self.conn.their_state is h11.DONE):
            if error.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                self.refuse(error.status, error.problem, "send fewer texts at a time")
                return
            self.refuse(error.status, f"malformed HTTP request: {error.problem}", _HELP)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - it does not say what is wrong
        """Refuse what h11 does not accept."""
        self.refuse(400, "malformed HTTP request", _HELP)

    def _should_upgrade(self) -> bool:
        """Ignore a request to change the protocol, as RFC 9110 allows, without a log line."""
        return False

    def on_response_complete(self) -> None:
        """Begin to wait for the next request, or close the connection."""
        self.since = self.loop.time()
        super().on_response_complete()
        if self._framing.begun:
            self._unset_keepalive_if_required()  # the time for a head applies
        self._refuse_framing()

    def shutdown(self) -> None:
        """Close the connection when its request is done."""
        if self._ending:
            self.transport.close()
        else:
            super().shutdown()

    def refuse(self, status: int, problem: str, help_: str) -> None:
        """Send an error, and close the connection when the client has read it.

        Args:
            status: status of the response.
            problem: what is wrong.
            help_: how to fix it.
        """
        if self._ending or self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        self._ending = self.loop.time()
        request: Any = self.cycle
        if request is not None and not request.response_complete:
            request.disconnected = True
            request.message_event.set()
            if request.response_started:  # there cannot be a second response
                self.transport.close()
                return
        self.transport.write(_response(status, problem, help_))
        if len(self.lingering) >= _LINGERING or not self.transport.can_write_eof():
            self.transport.close()
            return
        self.lingering.add(self)
        self.flow.resume_reading()
        try:
            self.transport.write_eof()
        except OSError:  # the client has reset the connection
            self.transport.abort()

    def _check(self) -> None:
        """Close the connection if its client is too slow."""
        self._timer = self.loop.call_later(self._tick, self._check)
        now, limits = self.loop.time(), self.limits
        if self._ending:
            if now - self._ending > LINGER:
                self.transport.abort()
        elif self._reads_too_slowly(now):
            self.transport.abort()
        elif self._framing.inside:
            if self.flow.read_paused:
                self.progress = now  # the client waits for the server
            request: Any = self.cycle
            done = request is not None and request.response_complete
            # `BodyLimit` responds first; this closes connections whose application does not read.
            if now - (self.since if done else self.progress) > limits.stall + 2 * self._tick:
                self.transport.close()
        elif self.waiting and self.incomplete:
            if now - self.since <= limits.head:
                return
            if self._framing.begun:
                problem = f"the head did not arrive within {limits.head:g} seconds"
                self.refuse(408, problem, "send it faster")
            else:
                self.close()

    def _reads_too_slowly(self, now: float) -> bool:
        """Return whether the client does not read the response."""
        unread = self.transport.get_write_buffer_size()
        if not unread:
            self._unread = self._written = 0
            return False
        if not self._unread:
            self._unread = self._last_read = now
        if unread < self._written:
            self._last_read = now
        self._written = unread
        complete = self.transport.is_closing() or self.waiting
        return now - self._last_read > self.limits.stall or (
            complete and now - self._unread > self.limits.upload
        )


def _response(status: int, problem: str, help_: str) -> bytes:
    body = json.dumps(one_error(problem, help_)).encode()
    again = "retry-after: 5\r\n" if status == HTTPStatus.SERVICE_UNAVAILABLE else ""
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n{again}connection: close\r\n\r\n"
    )
    return head.encode() + body


def guarded(limits: Limits) -> type[asyncio.Protocol]:
    """Return the class of connections with these limits, for uvicorn's option `http`."""
    return type("Guarded", (GuardedProtocol,), {"limits": limits, "lingering": set()})
