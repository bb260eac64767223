"""Who may use the server: a bearer token, the name it is called by, and pages of other origins.

Token and pages are off by default.  `/health` and `/health/live` need no token, because load
balancers call them.  Source: RFC 6750; the Fetch standard, section 3.3 (CORS).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...plugin import InputError, send_json
from .protocol.errors import one_error

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

VARIABLE = "WEFT_TOKEN"
"""Environment variable with the token, where no file is given."""
_HOST = re.compile(rb"(?:\[([0-9a-f:.]+)\]|([^:\[\]]*))(?::[0-9]*)?")
_OPEN = ("/health", "/health/live")


def read_token(file: str | None) -> str | None:
    """Return the token that requests must have; None if none is set.

    Args:
        file: a file that contains only the token; default: the variable `WEFT_TOKEN`.

    Raises:
        InputError: the file cannot be read, or the token is empty or not printable ASCII.
    """
    if file is None:
        token, location = os.environ.get(VARIABLE), VARIABLE
        if token is None:
            return None
    else:
        location = file
        try:
            token = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            problem = f"cannot read the token: {reason}"
            raise InputError(
                problem, location=location, help="name a file with the token"
            ) from None
    token = token.strip()
    if not token or not all("!" <= character <= "~" for character in token):
        raise InputError(
            "the token is empty, or has characters other than printable ASCII",
            location=location,
            help="make one with: openssl rand -hex 32",
        )
    return token


def restricted(
    app: ASGIApp,
    *,
    token: str | None,
    origins: Sequence[str],
    hosts: Sequence[str] | None = None,
) -> ASGIApp:
    """Return an application that checks token and Host, and answers pages of the given origins.

    Args:
        app: an application.
        token: required in the header `Authorization: Bearer TOKEN`; None requires none.
        origins: such as `https://example.com`; `*` is every origin.
        hosts: names that the header Host may have; None for any.
    """
    if token is not None:
        app = _Bearer(app, token)
    if origins:
        from starlette.middleware.cors import CORSMiddleware  # noqa: PLC0415 - rarely needed

        # Outside of the token: browsers send no token with their question about CORS.
        app = CORSMiddleware(
            app,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
            expose_headers=["retry-after"],
        )
    return app if hosts is None else _Named(app, hosts)


class _Named:
    """Responds with 421 to requests for another host; source: RFC 9110, section 15.5.20."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self._app, self._hosts = app, {host.lower().encode() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = [value for name, value in scope.get("headers", ()) if name == b"host"]
        if scope["type"] != "http" or all(_name_of(name) in self._hosts for name in names):
            await self._app(scope, receive, send)
            return
        problem = "the header Host does not name this server"
        help_ = "call http://localhost:PORT, or start the server with --allow-host or a token"
        await send_json(send, 421, one_error(problem, help_), [(b"connection", b"close")])


def _name_of(host: bytes) -> bytes:
    """Return the name in a header Host, without port and brackets; empty if it is malformed."""
    match = _HOST.fullmatch(host.strip().lower())
    return b"" if match is None else match[1] or match[2]


class _Bearer:
    """Responds with 401 to requests without the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._digest = app, _digest(token.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _OPEN:
            await self._app(scope, receive, send)
            return
        credentials = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = (credentials[0] if len(credentials) == 1 else b"").partition(b" ")
        # Digests have the same length, so comparing takes the same time for every token.
        right = hmac.compare_digest(_digest(token.strip()), self._digest)
        if right and scheme.lower() == b"bearer":
            await self._app(scope, receive, send)
            return
        problem = "the token is wrong" if credentials else "a token is required"
        body = one_error(problem, "send the header: Authorization: Bearer TOKEN")
        challenge = b'Bearer realm="weft"' + (b', error="invalid_token"' if credentials else b"")
        await send_json(send, 401, body, [(b"www-authenticate", challenge)])


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
