"""Translation requests: read the body, queue its texts, and wait for the results.

A body is refused before validation if it has too many texts: validation makes an object for each
error.  The routes are in `app.py`, error responses in `answers.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import torch
from fastapi import Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import ValidationError

from ...plugin import InputError
from .answers import LOG, answer, busy, one_problem, problems_of, stopping
from .batcher import ClosedError, FullError, PendingSentences
from .body import BodyError, parse
from .forms import Ask, RequestProblem
from .libre import Languages, LibreAsk, in_libre_form, in_libre_places
from .limits import Limits
from .service import Made, RefusedError, Service

CLIENT_CLOSED_REQUEST = 499
"""Status logged for requests whose client disconnected; no response is sent."""
ACCEPTED = "weft.accepted"
"""Key of a request's scope: whether it began before the server was told to stop."""
STREAM = "application/x-ndjson"
"""Content type of a stream: one JSON object on each line."""


def read_ask(payload: Any, limits: Limits, languages: Languages | None = None) -> Ask:
    """Return the request in a parsed body, in the server's own form.

    Args:
        payload: a parsed body, in the server's own form or in that of LibreTranslate.
        limits: limits on requests.
        languages: languages of the model, if they are known.

    Raises:
        RefusedError: values are invalid; it lists all of them.
    """
    libre = is_libre(payload)
    key = "q" if libre else "source"
    texts = payload.get(key) if isinstance(payload, dict) else None
    if isinstance(texts, list) and len(texts) > limits.texts:
        problem = f"{len(texts):,} texts is more than the limit of {limits.texts:,}"
        help_ = f"use at most {limits.texts:,}"
        raise RefusedError(422, [RequestProblem(place=f"/{key}", problem=problem, help=help_)])
    try:
        if not libre:
            return Ask.model_validate(payload)
        asked = LibreAsk.model_validate(payload)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        raise RefusedError(422, problems_of(errors)) from None
    if problems := asked.problems(languages):
        raise RefusedError(400, problems)
    return asked.ask()


def is_libre(payload: Any) -> bool:
    """Return whether a body has the form of LibreTranslate."""
    return isinstance(payload, dict) and "q" in payload


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
        payload = await asyncio.to_thread(parse, body, service.limits)
    except BodyError as error:
        return one_problem(error.status, error.problem, error.help)
    response = await _translated(service, request, payload)
    return in_libre_form(response, payload) if is_libre(payload) else response


async def _translated(service: Service, request: Request, payload: Any) -> Response:
    loop = asyncio.get_running_loop()
    done = asyncio.Queue[tuple[int, Made] | None]()

    def listen(index: int, result: Made) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has closed
            loop.call_soon_threadsafe(done.put_nowait, (index, result))

    def submit() -> tuple[Ask, PendingSentences[Any, Any, Any]]:
        ask = read_ask(payload, service.limits, service.languages)
        try:
            client = request.client.host if request.client else ""
            accepted = bool(request.scope.get(ACCEPTED))
            listener = listen if ask.stream else None
            return ask, service.submit(ask, listener, client=client, accepted=accepted)
        except RefusedError as error:
            if not is_libre(payload):
                raise
            problems = in_libre_places(error.problems, payload["q"])
            raise RefusedError(error.status, problems) from None

    try:
        ask, job = await asyncio.to_thread(submit)
    except RefusedError as error:
        return answer(error.status, error.problems)
    except FullError as error:
        return busy(str(error), service.retry_after())
    except ClosedError:
        return stopping()
    if ask.stream:
        return StreamingResponse(_lines(service, job, done), media_type=STREAM)
    return await _wait(service, request, job)


async def _lines(
    service: Service,
    job: PendingSentences[Any, Any, Any],
    done: asyncio.Queue[tuple[int, Made] | None],
) -> AsyncIterator[bytes]:
    """Yield a line for each result as it is done; if a text fails, a last line with the error."""
    future = asyncio.ensure_future(asyncio.wrap_future(job.future))
    future.add_done_callback(lambda _: done.put_nowait(None))
    patience = service.limits.patience
    end = time.monotonic() + patience
    try:
        while (item := await asyncio.wait_for(done.get(), end - time.monotonic())) is not None:
            index, result = item
            yield json.dumps({"index": index, **result}, ensure_ascii=False).encode() + b"\n"
        if future.cancelled() or future.exception() is not None:
            yield bytes(_made(future).body) + b"\n"
    except TimeoutError:
        late = busy(f"the request took more than {patience:g} seconds", service.retry_after())
        yield bytes(late.body) + b"\n"
    finally:
        future.cancel()
        service.cancel(job)


async def _wait(
    service: Service, request: Request, job: PendingSentences[Any, Any, Any]
) -> Response:
    """Wait for a job, until its client disconnects or it times out."""
    future = asyncio.ensure_future(asyncio.wrap_future(job.future))
    cancelled = asyncio.ensure_future(_cancelled(request))
    patience = service.limits.patience
    try:
        await asyncio.wait(
            {future, cancelled}, timeout=patience, return_when=asyncio.FIRST_COMPLETED
        )
        if future.done():
            return _made(future)
        if cancelled.done():
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        return busy(f"the request took more than {patience:g} seconds", service.retry_after())
    finally:
        cancelled.cancel()
        future.cancel()
        service.cancel(job)


def _made(future: asyncio.Future[list[dict[str, Any]]]) -> Response:
    """Return the response for a completed job."""
    try:
        return JSONResponse({"results": future.result()})
    except ClosedError:
        return stopping()
    except InputError as error:
        return answer(422, [RequestProblem(place="", problem=str(error.problem), help=error.help)])
    except torch.OutOfMemoryError:  # the log says what the server needs
        help_ = "send shorter texts, or search with a smaller beam"
        return one_problem(500, "the model has too little memory for this text", help_)
    except Exception:  # noqa: BLE001 - logged; the response says nothing about the cause
        LOG.exception("a request failed")
        return one_problem(500, "the model failed on this request", "see the server's log")


async def _cancelled(request: Request) -> None:
    """Return when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
