"""The server: correct responses to concurrent clients, and clear errors."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import httpx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor
from weft.extensions.serve.batcher import ClosedError
from weft.extensions.serve.forms import Ask, RequestOptions
from weft.extensions.serve.limits import Limits
from weft.extensions.serve.service import RefusedError, Service
from weft.runtime import api
from weft.runtime.decode.predictors.search import Beam
from weft.runtime.decode.predictors.text import TextPredictor, row_of_line
from weft.runtime.decode.stepper import ModelStepper

pytestmark = pytest.mark.integration

Served = Callable[..., AbstractContextManager[Any]]
WORDS = ("sun", "moon", "tree", "river", "stone", "bird", "wind", "leaf", "fire", "snow")
SECONDS = 20


def texts_of(answer: httpx.Response) -> list[str]:
    """Return the best translation of each text; empty if there is none."""
    assert answer.status_code == 200, answer.text
    results = answer.json()["results"]
    return [one["translations"][0]["text"] if one["translations"] else "" for one in results]


def test_one_text_and_several(served: Served, model: api.Model) -> None:
    """As strings or objects, including an empty one, in order."""
    lines = ["sun moon", "", "river stone bird wind leaf"]
    expected = model.translate(lines)

    with served() as client:
        one, object_, several = (
            client.post({"source": source})
            for source in (lines[0], {"text": lines[0]}, [lines[0], {"text": ""}, lines[2]])
        )

    assert texts_of(one) == texts_of(object_) == expected[:1]
    assert texts_of(several) == expected
    [result] = one.json()["results"]
    assert result["source"] == "sun moon"
    assert set(result) == {"source", "translations"}
    [best] = result["translations"]
    assert set(best) == {"text", "score", "log_probability", "finished", "tokens"}
    assert best["tokens"] == model.line_predictor().target.pieces(
        model.line_predictor().target.encode(best["text"])
    )


def test_callers_at_once_lose_and_mix_no_answer(served: Served, model: api.Model) -> None:
    """150 concurrent requests, with two settings and 1 to 3 texts; sentences share batches."""
    asked = [
        [f"{WORDS[n % 10]} {WORDS[n // 10 % 10]} {WORDS[(n + k) % 7]}" for k in range(n % 3)]
        + [f"{WORDS[n // 15]} {WORDS[n % 10]}"]
        for n in range(150)
    ]
    lines = sorted({line for each in asked for line in each})
    own = {"beam": 3, "alpha": 0.0}
    known = []
    for one in (model, api.open_model(model.checkpoint.folder, predict=own)):
        found = [best for best, *_ in one.line_predictor().stream(map(row_of_line, lines))]
        known.append(dict(zip(lines, found, strict=True)))
    assert len({best.score for best in known[0].values()}) > 100

    def call(number: int) -> Callable[[httpx.AsyncClient], Any]:
        body = {"source": asked[number], "search": own if number % 2 else {}}
        return lambda client: client.post("/translate", json=body, timeout=60)

    with served(batch=16) as client:
        answers = client.together(*(call(number) for number in range(150)))
        batches = client.counted("weft_batch_sentences_count")
        sentences = client.counted("weft_batch_sentences_sum")

    for number, answer in enumerate(answers):
        expected = [known[number % 2][line] for line in asked[number]]
        assert texts_of(answer) == [best.value for best in expected]
        for line, result, best in zip(
            asked[number], answer.json()["results"], expected, strict=True
        ):
            assert result["source"] == line
            assert result["translations"][0]["score"] == pytest.approx(best.score, abs=1e-4)
    assert sentences == sum(map(len, asked))
    assert sentences / batches > 8


def test_settings_of_a_request(served: Served, model: api.Model) -> None:
    """They override the server's settings; forced prefixes and required phrases are applied."""
    row = {"source": "sun moon", "prefix": "moon", "include": ["stone"]}
    [wanted] = model.translate([row])

    with served() as client:
        forced = client.post(
            {"source": {"text": "sun moon", "begin": "moon", "include": ["stone"]}}
        )
        long = {"nbest": 5, "min_length": 3}
        many = client.post({"source": "sun moon", "search": long})
        avoid = texts_of(many)[0].split()[0]
        without = client.post({"source": "sun moon", "search": {**long, "avoid": [avoid]}})
        drawn = [
            client.post({"source": "sun", "search": {"seed": seed}}) for seed in (1, 1, 2, 3, 4)
        ]

    assert texts_of(forced) == [wanted]
    assert wanted.startswith("moon")
    assert "stone" in wanted
    scores = [one["score"] for one in many.json()["results"][0]["translations"]]
    assert len(scores) == 5
    assert scores == sorted(scores, reverse=True)
    assert avoid not in texts_of(without)[0].split()
    assert drawn[0].json() == drawn[1].json()
    assert len({one.text for one in drawn}) > 1


LONG = "sun moon tree river stone bird wind"


def test_alignment_on_request(served: Served, model: api.Model) -> None:
    """It equals that of the public API; an empty text has none."""
    lines = ["sun moon tree", "", "river stone bird wind leaf"]
    with served() as client:
        answer = client.post({"source": lines, "alignment": True, "search": {"min_length": 2}})

    for line, result in zip(lines, answer.json()["results"], strict=True):
        [expected] = model.align([line], [one["text"] for one in result["translations"]] or [""])
        assert result["source_tokens"] == list(expected.source)
        for one in result["translations"]:
            assert len(one["alignment"]) == len(one["tokens"])
            if one["tokens"] == list(expected.target):
                assert one["alignment"] == [list(pair) for pair in expected.pairs]


MANY = {"source": ["sun"] * 4}
WRONG: list[tuple[dict[str, Any], int, str, str]] = [
    ({"json": MANY}, 422, "/source", "4 texts is more than the limit of 3"),
    ({"json": {"source": "a" * 51}}, 422, "/source/0/text", "51 characters"),
    ({"json": {"source": ["sun", LONG]}}, 422, "/source/1/text", "tokens"),
    ({"json": {"source": {"text": "a", "begin": LONG}}}, 422, "/source/0/begin", ""),
    ({"json": {"source": {"text": "a", "include": ["a", "b"]}}}, 422, "/source/0/include", "2 p"),
    ({"json": {"source": "a", "search": {"avoid": ["a", "b"]}}}, 422, "/search/avoid", "phrases"),
    ({"json": {"source": "a", "search": {"beam": 5}}}, 422, "/search/beam", "limit of 4"),
    ({"json": {"source": "a", "search": {"nbest": 5}}}, 422, "/search/beam", "limit of 4"),
    ({"json": {"source": "a", "search": {"alpha": 1e9}}}, 422, "/search/alpha", "limit of 10"),
    (
        {"json": {"source": "a", "search": {"beam": 2, "nbest": 3}}},
        422,
        "/search/nbest",
        "'nbest' 3",
    ),
    (
        {"json": {"source": "a", "search": {"top_p": 2}}},
        422,
        "/search/top_p",
        "",
    ),
    (
        {"json": {"source": "a", "search": {"temperature": 1e-30}}},
        422,
        "/search/temperature",
        "must be at least 0.01",
    ),
    ({"json": {"source": "a", "search": {"baem": 2}}}, 422, "/search/baem", "unknown key"),
    ({"json": {"source": [3]}}, 422, "/source/0", ""),
    ({"json": {}}, 422, "/source", "is missing"),
    ({"json": []}, 422, "", ""),
    ({"content": b'{"source": "\\ud800"}'}, 422, "/source/0/text", "surrogate"),
    ({"content": b'{"source": "a", "search": {"alpha": NaN}}'}, 422, "/search/alpha", ""),
    ({"content": b'{"source"'}, 400, "", "not valid JSON"),
    ({"content": b'{"source": "a", "source": "b"}'}, 400, "", "2 values have the key 'source'"),
    ({"content": b"\xff"}, 400, "", ""),
    ({"content": b"[" * 900}, 400, "", ""),
    ({"content": b"a" * 1001}, 413, "", "more than 1,000 bytes"),
    ({"data": {"source": "a"}}, 415, "", "urlencoded"),
]


@pytest.mark.parametrize(("sent", "status", "place", "problem"), WRONG)
def test_an_invalid_request_gets_its_place_and_help(
    served: Served, sent: dict[str, Any], status: int, place: str, problem: str
) -> None:
    """The next request is served normally."""
    if "content" in sent:
        sent = {**sent, "headers": {"content-type": "application/json"}}
    limits = {"texts": 3, "characters": 50, "tokens": 6, "phrases": 1, "beam": 4, "body": 1000}
    with served(**limits) as client:
        answer = client.post(**sent)

        assert answer.status_code == status, answer.text
        errors = answer.json()["errors"]
        assert place in [one["place"] for one in errors]
        assert any(problem in one["problem"] for one in errors)
        assert all(one["help"] for one in errors)
        assert texts_of(client.post({"source": "sun"}))


def test_every_mistake_comes_at_once_and_a_misspelt_key_is_known(served: Served) -> None:
    """Two errors, each with its place and help."""
    with served() as client:
        answer = client.post({"source": [{"text": 1}], "search": {"baem": 2}})

    places = {one["place"]: one["help"] for one in answer.json()["errors"]}
    assert places.keys() == {"/source/0/text", "/search/baem"}
    assert places["/search/baem"] == "did you mean 'beam'?"


def test_a_body_in_pieces_is_counted_too(served: Served) -> None:
    """A body without a content length is limited too."""

    async def parts() -> Any:
        for _ in range(30):
            yield b"a" * 100

    with served(body=1000) as client:
        answer = client.post(content=parts(), headers={"content-type": "application/json"})
        assert answer.status_code == 413


def test_a_full_queue_suggests_when_to_retry(served: Served) -> None:
    """Nothing of the rejected request is queued; others are served when there is capacity."""
    with served(queue=3, wait=0.0) as client:
        client.hold()

        async def scene(caller: httpx.AsyncClient) -> list[httpx.Response]:
            def post(count: int) -> asyncio.Task[httpx.Response]:
                body = {"source": ["sun"] * count}
                return asyncio.create_task(caller.post("/translate", json=body, timeout=SECONDS))

            first = post(1)
            assert await asyncio.to_thread(client.began.wait, SECONDS)
            second = post(2)
            while client.service.batcher.waiting < 2:
                await asyncio.sleep(0.001)
            refused = await post(2)
            client.go.set()
            return [refused, await first, await second]

        [[refused, *answered]] = client.together(scene)

    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) >= 1
    assert "cannot take 2 more texts" in refused.json()["errors"][0]["problem"]
    assert [len(texts_of(answer)) for answer in answered] == [1, 2]


def test_a_request_past_its_timeout_is_cancelled(served: Served) -> None:
    """The status is 503, and its sentences leave the queue."""
    with served(patience=0.05, wait=0.0) as client:
        client.hold()

        async def scene(caller: httpx.AsyncClient) -> list[httpx.Response]:
            first = asyncio.create_task(caller.post("/translate", json={"source": "sun"}))
            assert await asyncio.to_thread(client.began.wait, SECONDS)
            second = await caller.post("/translate", json={"source": ["sun", "moon"]})
            assert client.service.batcher.waiting == 0
            client.go.set()
            return [await first, second]

        [answers] = client.together(scene)
        dropped = client.counted("weft_dropped_sentences_total")

    assert [answer.status_code for answer in answers] == [503, 503]
    assert "took more than 0.05 seconds" in answers[1].json()["errors"][0]["problem"]
    assert dropped == 3  # one in the batch being decoded, two in the queue


def test_a_disconnected_client_cancels_its_sentences(served: Served) -> None:
    """Its sentences are never decoded; it is counted with status 499."""
    with served(wait=0.0) as client:
        client.hold()

        async def hang_up(cancelled: asyncio.Event) -> None:
            body, sent = json.dumps({"source": ["sun"] * 5}).encode(), False

            async def receive() -> dict[str, Any]:
                nonlocal sent
                if not sent:
                    sent = True
                    return {"type": "http.request", "body": body, "more_body": False}
                await cancelled.wait()
                return {"type": "http.disconnect"}

            async def send(message: Any) -> None:
                raise OSError(message)

            headers = [(b"content-type", b"application/json")]
            scope = {"type": "http", "method": "POST", "path": "/translate", "headers": headers}
            await client.app(
                {**scope, "query_string": b"", "http_version": "1.1", "scheme": "http"},
                receive,  # type: ignore[arg-type]
                send,
            )

        async def scene(caller: httpx.AsyncClient) -> httpx.Response:
            first = asyncio.create_task(caller.post("/translate", json={"source": "sun"}))
            assert await asyncio.to_thread(client.began.wait, SECONDS)
            cancelled = asyncio.Event()
            other = asyncio.create_task(hang_up(cancelled))
            while client.service.batcher.waiting < 5:
                await asyncio.sleep(0.001)
            cancelled.set()
            await other
            assert client.service.batcher.waiting == 0
            client.go.set()
            return await first

        [answer] = client.together(scene)
        assert texts_of(answer)
        assert client.counted("weft_batch_sentences_sum") == 1
        assert client.counted('weft_requests_total{path="/translate",status="499"}') == 1


def test_decoding_stops_for_a_disconnected_client(
    served: Served, model: api.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the next step on; the result of the other client in the batch is unchanged."""
    rows: list[int] = []
    reached, go = threading.Event(), threading.Event()
    steps = ModelStepper.steps

    def blocked(self: ModelStepper, tokens_RT: Tensor, position: int) -> Tensor:
        rows.append(len(tokens_RT))
        if len(rows) == 4:
            reached.set()
            assert go.wait(SECONDS)
        return steps(self, tokens_RT, position)

    search = {"beam": 2, "min_length": 8, "max_extra": 20}
    wanted = [Ask.model_validate({"source": [one], "search": search}) for one in ("sun", "moon")]
    alone = replace(model, strategy=Beam(**search)).translate(["moon"])
    monkeypatch.setattr(ModelStepper, "steps", blocked)

    with served(batch=2, wait=SECONDS) as client:
        first, second = map(client.service.submit, wanted)
        assert reached.wait(SECONDS)
        assert client.service.batcher.cancel(first) == 1
        go.set()
        [found] = second.future.result(SECONDS)

    assert rows[:4] == [4] * 4
    assert len(rows) > 5
    assert set(rows[4:]) == {2}
    assert found["translations"][0]["text"] == alone[0]


def test_stopping_finishes_accepted_requests_and_refuses_others(served: Served) -> None:
    """The health route reports that the server is stopping."""
    with served(wait=0.0) as client:
        client.hold()

        async def scene(caller: httpx.AsyncClient) -> list[httpx.Response]:
            first = asyncio.create_task(caller.post("/translate", json={"source": "sun"}))
            assert await asyncio.to_thread(client.began.wait, SECONDS)
            second = asyncio.create_task(caller.post("/translate", json={"source": "moon"}))
            while client.service.batcher.waiting < 1:
                await asyncio.sleep(0.001)
            client.service.stopping = True
            refused = await caller.post("/translate", json={"source": "tree"})
            health, live = await caller.get("/health"), await caller.get("/health/live")
            client.go.set()
            return [refused, health, live, await first, await second]

        [[refused, health, live, *answered]] = client.together(scene)

    assert refused.status_code == health.status_code == 503
    assert "retry-after" in refused.headers
    assert health.json()["status"] == "stopping"
    assert live.status_code == 200
    assert all(texts_of(answer) for answer in answered)


def test_a_failing_model_gives_500(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The response has no internal details, the log has; other requests are served."""
    logged: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append(self.format(record))

    monkeypatch.setattr(logging.getLogger(), "handlers", [Ear()])
    with served() as client:
        batcher: Any = client.service.batcher
        work = batcher._work

        def failing(key: Any, requests: Any, cancelled: Any) -> Any:
            if any(row["source"] == "moon" for row in requests):
                raise RuntimeError("the inside of it")
            return work(key, requests, cancelled)

        batcher._work = failing
        bad, good = client.together(
            lambda caller: caller.post("/translate", json={"source": "moon"}),
            lambda caller: caller.post("/translate", json={"source": "sun"}),
        )

    assert bad.status_code == 500
    assert "inside" not in bad.text
    assert any("the inside of it" in text for text in logged)
    assert texts_of(good)


def test_too_little_memory_for_a_batch_is_retried_one_by_one(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the tensors of the batch; the log names options, the response what to send."""
    logged: list[str] = []
    kept: list[int] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append(self.format(record))

    class Tensors:
        """What the frames of a failed batch hold."""

        alive = 0

        def __init__(self) -> None:
            Tensors.alive += 1

        def __del__(self) -> None:
            Tensors.alive -= 1

    plain = TextPredictor.stream

    def stream(self: TextPredictor, rows: Any, **given: Any) -> Any:
        kept.append(Tensors.alive)
        texts = [row["source"] for row in rows]
        if len(texts) > 1 or "moon" in texts:
            held = Tensors()
            raise torch.OutOfMemoryError(f"no memory beside {held}")
        return plain(self, rows, **given)

    monkeypatch.setattr(logging.getLogger(), "handlers", [Ear()])
    monkeypatch.setattr(TextPredictor, "stream", stream)
    with served() as client:
        bad = client.post({"source": ["sun", "bird", "moon"]})
        assert texts_of(client.post({"source": "sun"}))

    assert bad.status_code == 500
    assert bad.json()["errors"][0]["problem"] == "the model has too little memory for this text"
    assert "too small for 3 sentences; start the server with a smaller --batch" in logged[0]
    assert kept == [0, 0, 0, 0, 0]


def test_health_metrics_and_other_paths(served: Served) -> None:
    """Health, counts by path and status, and help for unknown paths."""
    with served() as client:
        assert client.get("/health").json()["status"] == "ready"
        client.post({"source": ["sun", "moon"]})
        lost, wrong = client.get("/nowhere"), client.get("/translate")

        assert lost.status_code == 404
        assert "/translate" in lost.json()["errors"][0]["help"]
        assert wrong.status_code == 405
        assert client.counted('weft_requests_total{path="/translate",status="200"}') == 1
        assert client.counted('weft_requests_total{path="other",status="404"}') == 1
        assert client.counted("weft_queue_sentences") == 0
        assert client.counted('weft_tokens_total{side="source"}') == sum(
            map(len, client.service.model.line_predictor().source.encode_many(["sun", "moon"]))
        )


def test_openapi_describes_every_field_and_gives_examples(served: Served) -> None:
    """It is generated from the code; its examples are valid requests."""
    with served() as client:
        schema = client.get("/openapi.json").json()
        forms = schema["components"]["schemas"]
        for form in ("Text", "RequestOptions", "Output", "Health", "RequestProblem"):
            for name, field in forms[form]["properties"].items():
                assert field.get("description"), (form, name)
        assert "default" not in forms["RequestOptions"]["properties"]["beam"]
        assert forms["RequestOptions"]["properties"].keys() == RequestOptions.model_fields.keys()
        assert {"200", "413", "422", "503"} <= schema["paths"]["/translate"]["post"][
            "responses"
        ].keys()
        for example in forms["Ask"]["examples"]:
            assert client.post(example).status_code == 200


@pytest.fixture(scope="module")
def service(model: api.Model) -> Service:
    """Return a service that only checks requests; its batcher is closed."""
    return Service(model, Limits())


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["text", "begin", "beam", "samples"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=30)
@given(source=_JSON, search=_JSON)
def test_any_json_is_served_or_refused(service: Service, source: Any, search: Any) -> None:
    """Any JSON that passes validation is within the limits."""
    try:
        ask = Ask.model_validate({"source": source, "search": search})
        service.submit(ask)
    except (ValidationError, RefusedError, ClosedError):
        pass
