"""Costly requests: refused by their estimated work before any of it is done."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError
from weft.extensions.serve.forms import Ask
from weft.extensions.serve.limits import Limits
from weft.extensions.serve.service import RefusedError, Service
from weft.extensions.serve.work import client_of, work_of
from weft.runtime import api
from weft.runtime.decode.predictors.registry import PREDICTORS, changed_predictor
from weft.runtime.decode.predictors.text import row_of_line

PHRASE = "sun moon tree river " * 30


def search(**settings: Any) -> Any:
    """Return settings of a search."""
    return SimpleNamespace(**settings)


def test_the_work_is_hypotheses_times_tokens_times_states() -> None:
    """By hand: 4 hypotheses, 10 read and 20 written tokens; 5 required ones cost 4 steps each."""
    assert work_of(search(beam=4), read=10, required=0, longest=20) == 4 * 30
    assert work_of(search(beam=4), read=10, required=5, longest=20) == 4 * 35 * (1 + 4 * 5)
    assert work_of(search(beam=4, max_extra=5), read=10, required=0, longest=200) == 4 * 25
    assert work_of(search(beam=1, max_length=7), read=10, required=0, longest=200) == 17
    assert work_of(search(samples=3), read=10, required=0, longest=20) == 3 * 30


def test_the_work_of_minimum_risk_has_that_of_the_pairs() -> None:
    """By hand: 8 samples and 2 beams, 10 x 8 pairs of at most 20 tokens, 8 of which are a step."""
    risk = PREDICTORS.parse({"type": "mbr", "samples": 8, "beam": 2, "max_extra": 10}, "")

    assert work_of(risk, read=10, required=0, longest=512) == 10 * 30 + 10 * 8 * 3


def test_networks_of_version_6_are_one_client() -> None:
    """A provider gives each customer a network of so many addresses."""
    assert client_of("2001:db8::1") == client_of("2001:db8::2") != client_of("2001:db8:0:1::1")
    assert client_of("192.0.2.1") != client_of("192.0.2.2")
    assert client_of("testclient") == "testclient"


@pytest.fixture
def service(model: api.Model) -> Service:
    """Return a service that only checks requests; its batcher does not run."""
    return Service(model, Limits())


@pytest.mark.integration
@pytest.mark.parametrize("texts", [1, 32])
def test_a_costly_request_is_refused_before_its_work(texts: int, service: Service) -> None:
    """1.3 kB with two required phrases of 120 words and a beam of 8, and 32 such texts."""
    text = {"text": "sun", "include": [PHRASE, PHRASE]}
    ask = Ask.model_validate({"source": [text] * texts, "search": {"beam": 8}})

    with pytest.raises(RefusedError) as caught:
        service.submit(ask)

    assert caught.value.status == 422
    [problem] = caught.value.problems
    assert problem.place == "/source"
    assert "estimated work" in problem.problem


@pytest.mark.integration
def test_requests_of_full_size_are_not_costly(service: Service) -> None:
    """64 texts of 100 tokens with the largest beam are below the limit of work."""
    service.batcher._thread = SimpleNamespace(is_alive=lambda: True)  # type: ignore[assignment]
    ask = Ask.model_validate({"source": ["sun " * 50] * 64, "search": {"beam": 8}})

    assert len(service.submit(ask).works) == 64


@pytest.mark.integration
def test_requests_of_minimum_risk_keep_to_the_limits(service: Service) -> None:
    """Without `samples`, as many as are permitted; more, or a slow metric, are refused."""
    ask = Ask.model_validate({"source": "sun moon", "search": {"metric": "chrf"}})
    search = service._search(ask)
    assert (search.type, search.samples) == ("mbr", 8)  # type: ignore[attr-defined]

    greedy = Ask.model_validate(
        {"source": "sun", "search": {"metric": "chrf", "samples": 9, "max_length": 3}}
    )
    with pytest.raises(RefusedError) as caught:
        service.submit(greedy)

    assert [problem.place for problem in caught.value.problems] == ["/search/samples"]
    with pytest.raises(ValidationError):
        Ask.model_validate({"source": "sun", "search": {"metric": "ter"}})


@pytest.mark.integration
def test_a_server_answers_by_minimum_risk(model: api.Model) -> None:
    """The outputs and their expected values are those of the model opened in Python."""
    search = {"metric": "chrf", "samples": 4, "nbest": 2, "max_extra": 3}
    service = Service(model, Limits())
    with service.running():
        job = service.submit(Ask.model_validate({"source": ["sun moon"], "search": search}))
        [result] = job.future.result(60)

    strategy = changed_predictor(service.default_strategy, search, "")
    predictor = replace(model, strategy=strategy).line_predictor()
    [answers] = predictor.stream([row_of_line("sun moon")])
    assert [output["text"] for output in result["translations"]] == [one.value for one in answers]
    assert [output["score"] for output in result["translations"]] == [one.score for one in answers]
