"""Translation requests: read the body, queue its texts, and wait for the results.

A body is refused before validation if it has too many texts: validation makes an object for each
error.  The routes are in `app.py`, error responses in `answers.py`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from pydantic import ValidationError

from ...specs.findings import InputError
from .answers import LOG, answer, busy, one_problem, problems_of, stopping
from .batcher import ClosedError, FullError, Job
from .body import BodyError, parse
from .forms import Ask, Problem
from .limits import Limits
from .service import RefusedError, Service

CLIENT_CLOSED_REQUEST = 499
"""Status logged for requests whose client disconnected; no response is sent."""


def read_ask(body: bytes, limits: Limits) -> Ask:
    """Return the request in a body.

    Raises:
        BodyError: the body cannot be parsed within the limits.
        RefusedError: values are invalid; it lists all of them.
    """
    given = parse(body, limits)
    source = given.get("source") if isinstance(given, dict) else None
    if isinstance(source, list) and len(source) > limits.texts:
        problem = f"{len(source):,} texts is more than the limit of {limits.texts:,}"
        help_ = f"use at most {limits.texts:,}"
        raise RefusedError(422, [Problem(place="/source", problem=problem, help=help_)])
    try:
        return Ask.model_validate(given)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise RefusedError(422, problems_of(found)) from None


def not_json(request: Request) -> Response | None:
    """Return the response to a body whose content type is not JSON, else None."""
    kind = request.headers.get("content-type", "")
    essence = kind.partition(";")[0].strip().lower()
    if essence == "application/json" or essence.endswith("+json"):
        return None
    help_ = "send content-type: application/json"
    return one_problem(415, f"content type '{kind}' is not JSON", help_)


async def translate(service: Service, request: Request) -> Response:
    """Return the response to one request."""
    body = await request.body()
    if refused := not_json(request):
        return refused
    try:
        # Parsing and tokenizing long texts must not block the event loop.
        job = await asyncio.to_thread(_submit, service, body)
    except BodyError as error:
        return one_problem(error.status, error.problem, error.help)
    except RefusedError as error:
        return answer(error.status, error.problems)
    except FullError as error:
        return busy(str(error), service.retry_after())
    except ClosedError:
        return stopping()
    return await _wait(service, request, job)


def _submit(service: Service, body: bytes) -> Job[Any, Any, Any]:
    return service.submit(read_ask(body, service.limits))


async def _wait(service: Service, request: Request, job: Job[Any, Any, Any]) -> Response:
    """Wait for a job, until its client disconnects or it times out."""
    made = asyncio.ensure_future(asyncio.wrap_future(job.future))
    cancelled = asyncio.ensure_future(_cancelled(request))
    patience = service.limits.patience
    try:
        await asyncio.wait({made, cancelled}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        if made.done():
            return _made(made)
        if cancelled.done():
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        return busy(f"the request took more than {patience:g} seconds", service.retry_after())
    finally:
        cancelled.cancel()
        made.cancel()
        service.cancel(job)


def _made(made: asyncio.Future[list[dict[str, Any]]]) -> Response:
    """Return the response for a completed job."""
    try:
        return JSONResponse({"results": made.result()})
    except ClosedError:
        return stopping()
    except InputError as error:
        return answer(422, [Problem(place="", problem=str(error.problem), help=error.help)])
    except Exception:  # noqa: BLE001 - logged; the response says nothing about the cause
        LOG.exception("a request failed")
        return one_problem(500, "the model failed on this request", "see the server's log")


async def _cancelled(request: Request) -> None:
    """Return when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
