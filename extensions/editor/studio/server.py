"""The server of the studio: one page, on this machine only, and its routes."""

from __future__ import annotations

import gc
import hmac
import json
import os
import secrets
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from ....graphs.draw.html_page import ASSETS
from ....plugin import InputError, SpecError, bound, send_json
from ....runtime.system.cache import cache_folder
from ....specs.escaping import html_text
from .files import ChangedError, OpenedFile
from .session import Session

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; "
    "img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


class _Guard:
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
        # The file that opens the studio is another site; the page has no data.
        opens = scope["path"] == "/" and headers.get(b"sec-fetch-mode") == [b"navigate"]
        site = headers.get(b"sec-fetch-site", [b"none"])[0]
        if site not in (b"same-origin", b"none") and not opens:
            return "the request comes from another site"
        if scope["path"].startswith("/api/"):
            credentials = headers.get(b"authorization", [])
            right = f"Bearer {self._token}".encode()
            if len(credentials) != 1 or not hmac.compare_digest(credentials[0], right):
                return "the token is wrong: open the address that 'weft studio' printed"
        return ""


MOST_BODY = 4_000_000
"""Maximum size of a request, in bytes."""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="nonce" content="{nonce}">
<title>Weft studio</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="style.css">
<script type="module" src="studio-shared.js" async></script>
<script type="module" src="studio.js"></script>
</head>
<body>
<div id="root"></div>
</body>
</html>
"""


def make_app(session: Session, token: str, port: int) -> ASGIApp:
    """Return the application of a studio.

    Args:
        session: the opened file.
        token: what requests for data must have.
        port: port of the server.
    """
    running = threading.Lock()

    def answering(
        act: Callable[[dict[str, Any]], Any], lock: threading.Lock = session.lock
    ) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            try:
                asked = await _body(request)
            except InputError as error:
                return _refusal(error, 400)

            def locked() -> Any:
                with lock:
                    return act(asked)

            try:
                return JSONResponse(await run_in_threadpool(locked))
            except ChangedError as error:
                return _refusal(error, 409)
            except InputError as error:
                return _refusal(error, 422)

        return answer

    async def page(_: Request) -> Response:
        text = _PAGE.format(nonce=guard.nonce)
        return Response(text, media_type="text/html; charset=utf-8")

    def asset(path: Path) -> Route:
        content = path.read_bytes()
        kind = "text/css" if path.suffix == ".css" else "text/javascript"

        async def answer(_: Request) -> Response:
            return Response(content, media_type=f"{kind}; charset=utf-8")

        return Route(f"/{path.name}", answer)

    posts = {name: answering(getattr(session, name)) for name in Session.ACTIONS}
    posts |= {name: answering(getattr(session, name), running) for name in Session.SLOW}
    app = Starlette(
        routes=[
            Route("/", page),
            *map(asset, [ASSETS / "style.css", *sorted(ASSETS.glob("studio*.js"))]),
            Route("/api/start", answering(lambda _: session.start())),
            Route("/api/file", answering(lambda _: session.file())),
            *(Route(f"/api/{name}", answer, methods=["POST"]) for name, answer in posts.items()),
        ]
    )
    guard = _Guard(app, token, port)
    return guard


async def _body(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request.

    Raises:
        InputError: it is too large, or no JSON object.
    """
    if request.method == "GET":
        return {}
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > MOST_BODY:
            raise InputError(
                "the request is too large", location="body", help="send a smaller text"
            )
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InputError("the request is no JSON object", location="body", help="send an object")
    return value


def _refusal(error: InputError, status: int) -> Response:
    details: dict[str, Any] = {
        "problem": error.problem,
        "help": error.help,
        "place": error.location,
    }
    if isinstance(error, SpecError):
        details["findings"] = [finding.as_json() for finding in error.findings]
    return JSONResponse({"error": details}, status_code=status)


HOST = "127.0.0.1"


def serve_studio(
    file: OpenedFile, *, port: int = 0, browser: bool = True, started: Callable[[str], None]
) -> None:
    """Serve the studio until SIGTERM or Ctrl-C.

    Args:
        file: the file to edit.
        port: port on 127.0.0.1; 0 takes any free one.
        browser: whether to open a browser.
        started: called with the address, which contains the token.

    Raises:
        InputError: the port is not available.
    """
    token = secrets.token_urlsafe(24)
    with bound(HOST, port) as listener:
        number = listener.getsockname()[1]
        tune_collector()
        # A browser does not send what follows the number sign to servers, or to other pages.
        address = f"http://{HOST}:{number}/#{token}"
        session = Session(file)
        server = _Server(
            uvicorn.Config(
                make_app(session, token, number),
                log_level="warning",
                server_header=False,
                lifespan="off",
                ws="none",
                http=Impatient,
            ),
            lambda: started(address),
        )
        # Until the browser has started, the answer that its page begins with is made.
        threading.Thread(target=session.prepare, daemon=True).start()
        with door(address) if browser else nullcontext() as file_address:
            if file_address is not None:
                threading.Thread(target=webbrowser.open, args=(file_address,), daemon=True).start()
            server.run(sockets=[listener])


def tune_collector() -> None:
    """Make garbage collection rare: an answer makes many objects, and few of them are garbage.

    With Python's thresholds, a third of the time of an answer about 1,000 nodes is collection.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@contextmanager
def door(address: str) -> Iterator[str]:
    """Yield the address of a file that leads to the studio, which only this user can read.

    Every user of a machine sees the command lines of its programs, so a browser must not be
    started with an address that contains the token.
    """
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix="studio-", suffix=".html", dir=folder)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            to = html_text(address)
            file.write(
                f'<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
                f'<meta http-equiv="refresh" content="0; url={to}"><a href="{to}">Weft studio</a>'
            )
        yield Path(name).as_uri()
    finally:
        Path(name).unlink(missing_ok=True)


IDLE = 10.0
"""Seconds after which a connection without a complete request is closed."""


class Impatient(H11Protocol):
    """A connection that ends if no complete request arrives in time."""

    def connection_made(self, transport: Any) -> None:
        """Start the timer."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._timer = self.loop.call_later(IDLE, self._check)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._since = self.loop.time()
        super().on_response_complete()

    def _check(self) -> None:
        request: Any = self.cycle
        answering = request is not None and not request.response_complete
        if not answering and self.loop.time() - self._since >= IDLE:
            self.transport.close()
            return
        self._timer = self.loop.call_later(IDLE / 4, self._check)


class _Server(uvicorn.Server):
    """A server that says when it listens."""

    def __init__(self, config: uvicorn.Config, listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._listening = listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._listening()
