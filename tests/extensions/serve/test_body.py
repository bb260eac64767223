"""Wrong bodies: the answer is short, and a body beyond the limits is not even parsed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from weft.extensions.serve import body as module
from weft.extensions.serve.answers import one_problem
from weft.extensions.serve.body import DEPTH, BodyError, BodyLimit, most_values, parse
from weft.extensions.serve.limits import Limits

pytestmark = pytest.mark.integration

Served = Callable[..., AbstractContextManager[Any]]
SIZE = 2**20 - 100
SHORT = 8_000
"""Bytes that no error response exceeds: 21 problems of 200 characters in each of three fields."""
JSON = {"content-type": "application/json"}


def repeated(part: bytes, between: bytes = b",") -> bytes:
    """Return a megabyte of one value."""
    return between.join([part] * (SIZE // (len(part) + len(between))))


HUGE = {
    "numbers": lambda: b'{"source": [' + repeated(b"1") + b"]}",
    "objects": lambda: b'{"source": [' + repeated(b"{}") + b"]}",
    "strings": lambda: b'{"source": [' + repeated(b'""') + b"]}",
    "keys": lambda: b'{"source": "a", ' + repeated(b'"a": 1') + b"}",
    "bare strings": lambda: b'{"source": ' + repeated(b'"a"', b"") + b"}",
    "brackets": lambda: b'{"source": ' + repeated(b"[]", b"") + b"}",
    "closing": lambda: repeated(b"]", b""),
    "nesting": lambda: b'{"source": ' + repeated(b"[", b"") + b"}",
    "escapes": lambda: b'{"source": "a' + repeated(b'\\"', b""),
    "one key": lambda: b'{"source": "a", "' + repeated(b"b", b"") + b'": 1}',
    "one place": lambda: b'{"source": "a", "search": {"' + repeated(b"b", b"") + b'": 1}}',
    "one text": lambda: b'{"source": {"text": "a", "begin": ["' + repeated(b"b", b"") + b'"]}}',
    "one number": lambda: b'{"source": "a", "search": {"beam": ' + repeated(b"1", b"") + b"}}",
    "phrases": lambda: b'{"source": "a", "search": {"avoid": [' + b",".join([b"1"] * 2000) + b"]}}",
}


@pytest.mark.parametrize("name", HUGE)
def test_a_megabyte_of_mistakes_gets_a_short_answer(served: Served, name: str) -> None:
    """At most 20 errors and the number of the others; the input is not repeated."""
    with served() as client:
        answer = client.post(content=HUGE[name](), headers=JSON)

    assert answer.status_code in (400, 422), answer.text[:SHORT]
    assert len(answer.content) < SHORT
    assert len(answer.json()["errors"]) <= 21


def test_more_than_twenty_errors_are_counted(served: Served) -> None:
    """The last entry gives the number of errors that are not listed."""
    with served() as client:
        errors = client.post({"source": [1] * 50}).json()["errors"]

    assert [one["place"] for one in errors[:-1]] == [f"/source/{index}" for index in range(20)]
    assert errors[-1]["problem"] == "and 30 more errors"


@pytest.mark.parametrize("name", ["numbers", "objects", "strings", "keys", "nesting", "closing"])
def test_a_body_beyond_the_limits_is_not_parsed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsing a megabyte of values would take a gigabyte with their errors."""
    monkeypatch.setattr(module, "json", None)

    with pytest.raises(BodyError) as caught:
        parse(HUGE[name](), Limits())

    assert caught.value.status in (400, 422)


def test_a_scan_takes_linear_time(count_calls: Callable[[Callable[[], object]], int]) -> None:
    """A megabyte of escaped quotes is one match, whether the string ends or not."""

    def scan() -> None:
        with pytest.raises(BodyError):
            parse(HUGE["escapes"](), Limits())

    assert count_calls(scan) < 2_000


def test_too_many_texts_are_refused_before_validation(served: Served) -> None:
    """One error for the list, none for its items."""
    with served(texts=3) as client:
        [error] = client.post({"source": [1, 2, 3, 4]}).json()["errors"]

    assert error["place"] == "/source"
    assert error["problem"] == "4 texts is more than the limit of 3"


def test_every_valid_request_is_within_the_bounds() -> None:
    """The largest request that the limits allow has fewer values, and less nesting."""
    limits = Limits(texts=5, phrases=3)
    text = {"text": 'a, [b] {c} "d"', "begin": "[{", "include": ["a,b"] * limits.phrases}
    search = dict.fromkeys("abcdefghijklmnopqrstuvwxyz", 1)
    full = {"source": [text] * limits.texts, "search": {**search, "avoid": ["["] * 3}}

    assert parse(json.dumps(full).encode(), limits) == full
    assert parse(b"\xef\xbb\xbf" + json.dumps(full).encode(), limits) == full
    assert most_values(limits) > 5 * 6 + 40
    assert DEPTH > 4


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "latin-1"])
def test_only_utf_8_is_json(encoding: str) -> None:
    """The scan reads bytes, so another encoding could hide values from it."""
    with pytest.raises(BodyError, match="UTF-8"):
        parse('{"source": "ä"}'.encode(encoding), Limits())


@pytest.mark.parametrize(("upload", "stall"), [(0.05, 9.0), (9.0, 0.05)])
def test_a_slow_body_gets_408(upload: float, stall: float) -> None:
    """Whether it pauses too long or takes too long; the application is not called."""

    async def receive() -> Any:
        await asyncio.sleep(0.02 if stall > 1 else 1.0)
        return {"type": "http.request", "body": b"a", "more_body": True}

    sent = run(
        BodyLimit(_untouched, limits=Limits(upload=upload, stall=stall), refuse=one_problem),
        receive,
    )

    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]


def test_bodies_share_a_bound_on_memory() -> None:
    """With 64 full bodies in memory, a further one gets 503; an answered one makes room."""
    sent: list[Any] = []

    async def scene() -> list[int]:
        go = asyncio.Event()

        async def app(*_: Any) -> None:
            await go.wait()

        middleware = BodyLimit(app, limits=Limits(body=10), refuse=one_problem)

        async def one() -> int:
            before = len(sent)
            await middleware({"type": "http", "headers": []}, _full, _collect(sent))
            return sent[before]["status"] if len(sent) > before else 200

        others = [asyncio.create_task(one()) for _ in range(64)]
        await asyncio.sleep(0)
        refused = await one()
        go.set()
        await asyncio.gather(*others)
        return [refused, await one()]

    assert asyncio.run(scene()) == [503, 200]


async def _untouched(*_: Any) -> None:
    raise AssertionError


async def _full() -> Any:
    return {"type": "http.request", "body": b"a" * 10, "more_body": False}


def _collect(sent: list[Any]) -> Callable[[Any], Any]:
    async def send(message: Any) -> None:
        sent.append(message)

    return send


def run(app: Any, receive: Any) -> list[Any]:
    """Return the messages that an application sends."""
    sent: list[Any] = []
    asyncio.run(app({"type": "http", "headers": []}, receive, _collect(sent)))
    return sent
