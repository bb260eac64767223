"""Routes of the HTTP server.

    POST /translate     translate texts; texts of different clients share batches
    GET  /languages     languages of the model, as LibreTranslate answers it
    GET  /v1/model      name, size, limits and settings of the model
    GET  /health        status of the server; 503 while it starts or stops
    GET  /health/live   200 as long as the process responds
    GET  /metrics       metrics in the format of Prometheus
    GET  /docs          description of all routes, for people
    GET  /openapi.json  the same for programs

What a translation request does is in `translating.py`, error responses are in `answers.py`, queue
and thread in `batcher.py`, sockets and signals in `server.py`.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic.json_schema import models_json_schema

from .answers import PATHS, answer_errors, one_problem
from .body import BodyLimit
from .forms import Ask, Health, LibreAnswer, Problems, TranslationList
from .libre import LibreAsk, listed
from .metrics import CONTENT_TYPE
from .pages import HEADERS, described, page
from .service import Service
from .translating import ACCEPTED, CLIENT_CLOSED_REQUEST, translate

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The body is not valid JSON."},
    408: {"description": "The body did not arrive in time."},
    413: {"description": "The body is too large."},
    415: {"description": "The content type is not JSON."},
    422: {"description": "Values are invalid or exceed a limit; the first 20 errors are listed."},
    503: {"description": "The queue is full, the request timed out, or the server is stopping."},
}
_REFERENCE = "#/components/schemas/{model}"
_BODY = {"anyOf": [{"$ref": _REFERENCE.format(model=name)} for name in ("Ask", "LibreAsk")]}


def make_app(service: Service) -> FastAPI:
    """Return an ASGI application; its service must be running while it is used.

    service = Service(weft.open("outputs/demo/averaged"), Limits())
    with service.running():
        uvicorn.run(make_app(service))
    """
    name = service.model.graph.name
    app = FastAPI(
        title=f"Weft: {name}",
        description=_described(service),
        docs_url=None,  # these pages load scripts from another server; see `pages.py`
        redoc_url=None,
    )

    @app.post(
        "/translate",
        response_model=TranslationList | LibreAnswer,
        responses={code: {**error, "model": Problems} for code, error in _ERRORS.items()},
        # The body is not a parameter: FastAPI would validate it without bounds.
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": _BODY}},
            }
        },
    )
    async def translate_texts(request: Request) -> Response:
        """Translate one text or several.

        With `"stream": true` the response has the type application/x-ndjson: a `Result` with its
        `index` on each line, in the order in which they are done. If a text fails, the last line
        has `errors`.
        """
        return await translate(service, request)

    @app.get("/languages")
    async def languages() -> list[dict[str, Any]]:
        """Return the languages of the model, as LibreTranslate does; none if they are unknown."""
        return listed(service.languages)

    @app.get("/v1/model")
    async def model() -> dict[str, Any]:
        """Return name, size, fingerprint, languages, limits and search settings of the model."""
        return described(service)

    @app.get(
        "/health",
        response_model=Health,
        responses={503: {"model": Health, "description": "The server is stopping."}},
    )
    async def health() -> Response:
        """Return whether the server accepts requests."""
        ready = service.batcher.alive and not service.stopping
        state = Health(
            status="ready" if ready else "stopping",
            model=name,
            waiting=service.batcher.waiting,
            seconds=round(time.monotonic() - service.began, 3),
        )
        return JSONResponse(state.model_dump(), 200 if ready else 503)

    @app.get("/health/live")
    async def live() -> dict[str, str]:
        """Return a constant, to show that the process responds."""
        return {"status": "live"}

    @app.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Return metrics in the format of Prometheus."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    @app.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(page(app.openapi()), headers=HEADERS)

    answer_errors(app)
    _describe_bodies(app)
    app.add_middleware(BodyLimit, limits=service.limits, refuse=one_problem)
    app.add_middleware(_Counted, service=service)
    return app


def _describe_bodies(app: FastAPI) -> None:
    """Add the schemas of request bodies to the description of the routes."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
            )
            _, bodies = models_json_schema(
                [(Ask, "validation"), (LibreAsk, "validation")], ref_template=_REFERENCE
            )
            schema["components"]["schemas"] |= bodies["$defs"]
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _described(service: Service) -> str:
    limits = service.limits
    return (
        f"Translation with {service.model.graph.name}. A request may have {limits.texts} texts "
        f"of {limits.characters:,} characters and {limits.tokens:,} tokens each, and "
        f"{limits.body:,} bytes in total; it times out after {limits.patience:g} seconds."
    )


class _Counted:
    """Counts requests by path and status, and measures how long translations took."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service, self._metrics = app, service, service.metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"] if scope["path"] in PATHS else "other"
        status, started = CLIENT_CLOSED_REQUEST, time.monotonic()
        accepted = not self._service.stopping
        scope[ACCEPTED] = accepted
        self._service.accepted += accepted

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            # The client may have disconnected already.
            with contextlib.suppress(OSError):
                await send(message)

        try:
            await self._app(scope, receive, sent)
        except Exception:
            status = 500
            raise
        finally:
            self._service.accepted -= accepted
            self._metrics.requests.labels(path, str(status)).inc()
            if path == "/translate":
                self._metrics.seconds.observe(time.monotonic() - started)
