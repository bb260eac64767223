"""Routes of the studio.

    GET  /               the page
    GET  /studio*.js     its scripts, and /style.css its style
    GET  /api/start      the text on disk and the answer to it, with which a page begins
    GET  /api/file       the text on disk and its digest
    POST /api/look       findings and drawing of a text
    POST /api/menu       what fits at a place
    POST /api/ports      the ports that fit a value
    POST /api/edit       a text after a click
    POST /api/save       write the file
    POST /api/variant    write, or preview, a file that extends it
    POST /api/diff       compare with another spec
    POST /api/code       the Python that is generated
    POST /api/curves     the curves of the run of a checkpoint
    POST /api/attention  its attention weights for a sentence
    POST /api/times      the measured time of each node
    POST /api/complete, /api/hover, /api/format   the language, at an offset of the text

Every route of `/api` needs the token; see `guard.py`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ....graphs.draw.scene.page import ASSETS
from ....specs.findings import InputError, SpecError
from .files import ChangedError
from .guard import Guard
from .session import Session

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request
    from starlette.types import ASGIApp

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
    guard = Guard(app, token, port)
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
