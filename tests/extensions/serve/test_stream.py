"""Streams: a line for each result as soon as it is done."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.integration

Served = Callable[..., AbstractContextManager[Any]]
LINES = ["sun moon", "", "river stone bird", "wind"]
SECONDS = 20


def lines_of(answer: httpx.Response) -> list[dict[str, Any]]:
    """Return the objects of a stream."""
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


def test_a_stream_has_the_results_of_a_plain_response(served: Served) -> None:
    """Each line has the index of its text."""
    with served(batch=2) as client:
        plain = client.post({"source": LINES, "alignment": True}).json()["results"]
        lines = lines_of(client.post({"source": LINES, "alignment": True, "stream": True}))
        none = lines_of(client.post({"source": [], "stream": True}))

    assert sorted(line["index"] for line in lines) == [0, 1, 2, 3]
    for line in lines:
        assert {"index": line["index"], **plain[line["index"]]} == line
    assert none == []


def test_results_come_before_the_request_is_done(served: Served) -> None:
    """The first line arrives while the second text still waits."""
    with served(batch=1, wait=0.0) as client:
        batcher: Any = client.service.batcher
        work = batcher._work

        def second_waits(key: Any, given: Any, cancelled: Any) -> Any:
            if given[0]["source"] == "moon":
                assert client.go.wait(SECONDS)
            return work(key, given, cancelled)

        batcher._work = second_waits
        seen: list[int] = []

        async def scene() -> None:
            messages: asyncio.Queue[Any] = asyncio.Queue()
            body = json.dumps({"source": ["sun", "moon"], "stream": True}).encode()
            sent = [{"type": "http.request", "body": body, "more_body": False}]

            async def receive() -> Any:
                if not sent:
                    await asyncio.Event().wait()
                return sent.pop()

            scope = {
                "type": "http",
                "method": "POST",
                "path": "/translate",
                "query_string": b"",
                "headers": [(b"content-type", b"application/json")],
                "asgi": {"version": "3.0", "spec_version": "2.3"},
            }
            task = asyncio.create_task(client.app(scope, receive, messages.put))
            while True:
                message = await asyncio.wait_for(messages.get(), SECONDS)
                if message.get("body"):
                    seen.append(json.loads(message["body"])["index"])
                    client.go.set()
                if message["type"] == "http.response.body" and not message.get("more_body"):
                    break
            await task

        asyncio.run(scene())

    assert seen == [0, 1]


def test_an_error_is_the_last_line(served: Served) -> None:
    """The status has been sent by then."""
    with served(batch=1) as client:
        batcher: Any = client.service.batcher
        work = batcher._work

        def failing(key: Any, given: Any, cancelled: Any) -> Any:
            if given[0]["source"] == "moon":
                raise RuntimeError("the inside of it")
            return work(key, given, cancelled)

        batcher._work = failing
        first, last = lines_of(client.post({"source": ["sun", "moon"], "stream": True}))

    assert first["index"] == 0
    assert last["errors"][0]["problem"] == "the model failed on this request"


def test_a_late_stream_ends_with_an_error(served: Served) -> None:
    """Its sentences leave the queue."""
    with served(patience=0.05, wait=0.0) as client:
        client.hold()
        [line] = lines_of(client.post({"source": ["sun", "moon"], "stream": True}))
        client.go.set()
        dropped = client.counted("weft_dropped_sentences_total")

    assert "took more than 0.05 seconds" in line["errors"][0]["problem"]
    assert dropped == 2


def test_a_wrong_request_is_refused_before_the_stream(served: Served) -> None:
    """With its own status."""
    with served() as client:
        answer = client.post({"source": 1, "stream": True})

    assert answer.status_code == 422
