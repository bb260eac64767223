"""Error responses: one format for all errors, bounded in number and in length."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from ...plugin import did_you_mean, pointer
from ...specs.wording import describe
from .body import EXAMPLE
from .forms import RequestProblem, known_keys
from .protocol.errors import error_body

LOG = logging.getLogger("weft.serve")

MOST = 20
"""Maximum number of errors in a response; a last entry counts the others."""
_LONGEST = 200
"""Maximum characters of a place, a problem or a help text."""
_KEY = 40
"""Maximum characters of an unknown key in a message."""
PATHS = (
    "/translate",
    "/languages",
    "/v1/model",
    "/health",
    "/health/live",
    "/metrics",
    "/docs",
    "/openapi.json",
)
_HELP = {
    404: f"the paths are {', '.join(PATHS)}",
    405: "use POST for /translate, GET for other paths",
}


def answer(
    status: int, problems: Sequence[RequestProblem], headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return a response with the first problems, and the number of the others."""
    shown = [
        RequestProblem(
            place=_cut(problem.place), problem=_cut(problem.problem), help=_cut(problem.help)
        )
        for problem in problems[:MOST]
    ]
    if len(problems) > MOST:
        remainder = f"and {len(problems) - MOST:,} more errors"
        shown.append(
            RequestProblem(place="", problem=remainder, help="correct the errors above first")
        )
    return JSONResponse(error_body([problem.model_dump() for problem in shown]), status, headers)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def one_problem(status: int, problem: str, help_: str) -> JSONResponse:
    """Return a response with one problem of the request as a whole."""
    return answer(status, [RequestProblem(place="", problem=problem, help=help_)])


def busy(problem: str, later: int) -> JSONResponse:
    """Return a 503 that suggests when to retry.

    Args:
        problem: why the request was not served.
        later: seconds after which to retry.
    """
    response = one_problem(503, problem, f"retry in {later} seconds, or send fewer texts")
    response.headers["retry-after"] = str(later)
    return response


def stopping() -> JSONResponse:
    """Return the response to new requests while the server stops."""
    response = one_problem(503, "the server is stopping", "retry later, or use another server")
    response.headers.update({"retry-after": "5", "connection": "close"})
    return response


def problems_of(errors: Iterable[Mapping[str, Any]]) -> list[RequestProblem]:
    """Convert validation errors of a body; each place is a JSON pointer."""
    return [_problem(error) for error in errors]


def _problem(error: Mapping[str, Any]) -> RequestProblem:
    where = [key[:_KEY] if isinstance(key, str) else key for key in error["loc"]]
    problem, help_ = describe(error), "see /openapi.json"
    if error["type"] == "extra_forbidden":
        problem, keys = "unknown key", known_keys(where[:-1])
        help_ = did_you_mean(str(where[-1]), keys) or f"known: {', '.join(keys)}"
    elif not where:
        help_ = EXAMPLE
    return RequestProblem(
        place=pointer(*where),
        problem=problem,
        help=help_,
    )


def answer_errors(app: FastAPI) -> None:
    """Give errors of the framework the same format as other errors."""

    async def other(_: Request, error: Any) -> Response:
        help_ = _HELP.get(error.status_code, "see /openapi.json")
        response = one_problem(error.status_code, str(error.detail), help_)
        response.headers.update(error.headers or {})
        return response

    async def crash(_: Request, error: Any) -> Response:  # noqa: ARG001 - the server logs it
        return one_problem(500, "the server failed on this request", "see the server's log")

    handlers: Mapping[Any, Callable[[Request, Any], Awaitable[Response]]] = {
        HTTPException: other,
        Exception: crash,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)
