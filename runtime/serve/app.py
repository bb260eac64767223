"""Routes of the HTTP server, and the format of its responses.

    POST /translate     translate texts; texts of different clients share batches
    GET  /health        status of the server; 503 while it stops
    GET  /health/live   200 as long as the process responds
    GET  /metrics       metrics in the format of Prometheus
    GET  /openapi.json  machine-readable description of all routes

Queue and thread are in `batcher.py`, sockets and signals in `server.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from ...specs.findings import InputError, did_you_mean
from ...specs.wording import describe
from .batcher import ClosedError, FullError, Job
from .body import BodyLimit
from .forms import Answer, Ask, Health, Problem, Problems, known_keys
from .metrics import CONTENT_TYPE
from .service import RefusedError, Service

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOG = logging.getLogger("weft.serve")

CLIENT_CLOSED_REQUEST = 499
"""Status logged for requests whose client disconnected; no response is sent."""
_PATHS = ("/translate", "/health", "/health/live", "/metrics", "/openapi.json")

_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The body is not valid JSON."},
    413: {"description": "The body is too large."},
    415: {"description": "The content type is not JSON."},
    422: {"description": "Values are invalid or exceed a limit; all errors are listed."},
    503: {"description": "The queue is full, the request timed out, or the server is stopping."},
}


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
        docs_url=None,  # these pages load third-party scripts; use /openapi.json instead
        redoc_url=None,
    )

    @app.post(
        "/translate",
        response_model=Answer,
        responses={code: {**error, "model": Problems} for code, error in _ERRORS.items()},
    )
    async def translate(request: Request, ask: Ask) -> Response:
        """Translate one text or several."""
        return await _translated(service, request, ask)

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

    _answer_errors(app)
    app.add_middleware(BodyLimit, most=service.limits.body, refuse=_one)
    app.add_middleware(_Counted, service=service)
    return app


def _described(service: Service) -> str:
    limits = service.limits
    return (
        f"Translation with {service.model.graph.name}. A request may have {limits.texts} texts "
        f"of {limits.characters:,} characters and {limits.tokens:,} tokens each, and "
        f"{limits.body:,} bytes in total; it times out after {limits.patience:g} seconds."
    )


async def _translated(service: Service, request: Request, ask: Ask) -> Response:
    """Wait for a request's translations, until its client disconnects or it times out."""
    try:
        # Tokenizing long texts must not block the event loop.
        job = await asyncio.to_thread(service.submit, ask)
    except RefusedError as error:
        return _answer(error.status, error.problems)
    except FullError:
        return _busy(service, f"the queue cannot take {len(ask.source)} more texts")
    except ClosedError:
        return _stopping()
    made = asyncio.ensure_future(asyncio.wrap_future(job.future))
    cancelled = asyncio.ensure_future(_cancelled(request))
    patience = service.limits.patience
    try:
        await asyncio.wait({made, cancelled}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if made.done():
            return _made(made)
        if cancelled.done():
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        return _busy(service, f"the request took more than {patience:g} seconds")
    finally:
        cancelled.cancel()
        made.cancel()
        _cancel_job(service, job)


def _made(made: asyncio.Future[list[dict[str, Any]]]) -> Response:
    """Return the response for a completed job."""
    try:
        return JSONResponse({"results": made.result()})
    except ClosedError:
        return _stopping()
    except InputError as error:
        return _answer(422, [Problem(place="", problem=str(error.problem), help=error.help)])
    except Exception:
        LOG.exception("a request failed")
        return _one(500, "the model failed on this request", "see the server's log")


def _cancel_job(service: Service, job: Job[Any, Any, Any]) -> None:
    if not job.future.done():
        service.metrics.dropped.inc(service.batcher.cancel(job))


async def _cancelled(request: Request) -> None:
    """Return when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _answer(
    status: int, problems: list[Problem], headers: Mapping[str, str] | None = None
) -> JSONResponse:
    return JSONResponse(Problems(errors=problems).model_dump(), status, headers)


def _one(status: int, problem: str, help_: str) -> JSONResponse:
    return _answer(status, [Problem(place="", problem=problem, help=help_)])


def _busy(service: Service, problem: str) -> JSONResponse:
    later = service.retry_after()
    help_ = f"retry in {later} seconds, or send fewer texts"
    return _answer(
        503, [Problem(place="", problem=problem, help=help_)], {"retry-after": str(later)}
    )


def _stopping() -> JSONResponse:
    problem = Problem(
        place="", problem="the server is stopping", help="retry later, or use another server"
    )
    return _answer(503, [problem], {"retry-after": "5", "connection": "close"})


def _answer_errors(app: FastAPI) -> None:
    """Give errors of the framework the same format as other errors."""

    async def unfit(request: Request, error: Any) -> Response:
        found = error.errors()
        kind = request.headers.get("content-type", "")
        if "json" not in kind and await request.body():
            return _one(
                415, f"content type '{kind}' is not JSON", "send content-type: application/json"
            )
        if any(one["type"] == "json_invalid" for one in found):
            reason = found[0].get("ctx", {}).get("error", "")
            return _one(400, f"the body is not valid JSON: {reason}", _EXAMPLE)
        return _answer(422, [_problem(one) for one in found])

    async def other(_: Request, error: Any) -> Response:
        help_ = _HELP.get(error.status_code, "see /openapi.json")
        answer = _one(error.status_code, str(error.detail), help_)
        answer.headers.update(error.headers or {})
        return answer

    async def crash(_: Request, error: Any) -> Response:  # noqa: ARG001 - the server logs it
        return _one(500, "the server failed on this request", "see the server's log")

    handlers: Mapping[Any, Callable[[Request, Any], Awaitable[Response]]] = {
        RequestValidationError: unfit,
        HTTPException: other,
        Exception: crash,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


_EXAMPLE = 'send an object, such as {"source": "A dog runs."}'
_HELP = {
    404: f"the paths are {', '.join(_PATHS)}",
    405: "use POST for /translate, GET for other paths",
}


def _problem(error: Mapping[str, Any]) -> Problem:
    """Convert one validation error of a body; its place is a JSON pointer."""
    where, problem, help_ = error["loc"][1:], describe(error), "see /openapi.json"
    if error["type"] == "extra_forbidden":
        problem, known = "unknown key", known_keys(where[:-1])
        help_ = did_you_mean(str(where[-1]), known) or f"known: {', '.join(known)}"
    elif not where:
        help_ = _EXAMPLE
    return Problem(
        place="".join(f"/{str(one).replace('~', '~0').replace('/', '~1')}" for one in where),
        problem=problem,
        help=help_,
    )


class _Counted:
    """Counts requests by path and status, and measures how long translations took."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._metrics = app, service.metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"] if scope["path"] in _PATHS else "other"
        status, started = CLIENT_CLOSED_REQUEST, time.monotonic()

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
            self._metrics.requests.labels(path, str(status)).inc()
            if path == "/translate":
                self._metrics.seconds.observe(time.monotonic() - started)
