"""Who may use the studio: the page with the token, on this machine, from this origin.

Other pages in the same browser can send requests to 127.0.0.1, and a name can be made to lead
there (DNS rebinding); so the headers `Host` and `Origin` must be those of the studio, and every
request for data needs the random token, which only the opened address contains.
"""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING

from ....runtime.system.http import send_json

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; "
    "img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


class Guard:
    """Refuses requests from elsewhere, and adds headers to responses."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        """Guard an application.

        Args:
            app: the application.
            token: what requests below `/api` must have as their bearer token.
            port: port of the server.
        """
        self._app, self._token = app, token
        self.nonce = secrets.token_urlsafe(16)
        self._hosts = {f"127.0.0.1:{port}".encode(), f"localhost:{port}".encode()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to one request."""
        if scope["type"] != "http":
            return
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        if reason := self._refused(scope, headers):
            await send_json(send, 403, {"error": {"problem": reason, "help": "", "place": ""}})
            return
        more = [
            (b"content-security-policy", POLICY.format(nonce=self.nonce).encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-resource-policy", b"same-origin"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cache-control", b"no-store"),
        ]

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *more]
            await send(message)

        await self._app(scope, receive, sent)

    def _refused(self, scope: Scope, headers: dict[bytes, list[bytes]]) -> str:
        """Return why a request is refused, or nothing."""
        hosts = headers.get(b"host", [])
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return "the header Host is not that of the studio"
        origins = headers.get(b"origin", [])
        if origins not in ([], [b"http://" + hosts[0]]):
            return "the header Origin is not that of the studio"
        if headers.get(b"sec-fetch-site", [b"none"])[0] not in (b"same-origin", b"none"):
            return "the request comes from another site"
        if scope["path"].startswith("/api/"):
            credentials = headers.get(b"authorization", [])
            right = f"Bearer {self._token}".encode()
            if len(credentials) != 1 or not hmac.compare_digest(credentials[0], right):
                return "the token is wrong: open the address that 'weft studio' printed"
        return ""
