"""Clients of LibreTranslate: the same body and the same answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from weft.extensions.serve.libre import Languages, languages_of, listed
from weft.runtime import api
from weft.runtime.data.readers.split import Split

pytestmark = pytest.mark.integration

Served = Callable[..., AbstractContextManager[Any]]


def test_one_text_or_a_list(served: Served, model: api.Model) -> None:
    """The answer has a text for a text, and a list for a list."""
    lines = ["sun moon", "river stone bird"]
    expected = model.translate(lines)
    asked = {"source": "auto", "target": "de", "format": "text", "api_key": ""}

    with served() as client:
        client.service.languages = Languages("en", "de")
        one = client.post({"q": lines[0], **asked})
        several = client.post({"q": [*lines, ""], **asked})
        none = client.post({"q": [], **asked})

    assert one.json() == {"translatedText": expected[0]}
    assert several.json() == {"translatedText": [*expected, ""]}
    assert none.json() == {"translatedText": []}


def test_alternatives(served: Served) -> None:
    """They are the further hypotheses of the search."""
    with served() as client:
        client.service.languages = None
        found = client.post({"q": "sun moon", "target": "xx", "alternatives": 2}).json()
        own = client.post({"source": "sun moon", "search": {"nbest": 3}}).json()

    texts = [one["text"] for one in own["results"][0]["translations"]]
    assert found == {"translatedText": texts[0], "alternatives": texts[1:]}


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\x85", "\n\n"])
def test_each_line_of_a_text_is_translated_by_itself(
    served: Served, model: api.Model, end: str
) -> None:
    """The ends of lines are kept, in a text and in a list of texts."""
    first, second = model.translate(["sun moon", "river stone bird"])
    text = f"sun moon{end}river stone bird{end}"

    with served() as client:
        client.service.languages = None
        one = client.post({"q": text, "target": "xx"}).json()
        several = client.post({"q": [text, "sun moon"], "target": "xx"}).json()

    assert one == {"translatedText": f"{first}{end}{second}{end}"}
    assert several == {"translatedText": [f"{first}{end}{second}{end}", first]}


def test_alternatives_of_a_text_of_two_lines(served: Served) -> None:
    """The first alternative has the second translation of each line, or its only one."""
    with served() as client:
        client.service.languages = None
        ask = {"target": "xx", "alternatives": 1}
        found = client.post({"q": "sun moon\nbird", **ask}).json()
        lines = [client.post({"q": line, **ask}).json() for line in ("sun moon", "bird")]

    second = [(one["alternatives"] or [one["translatedText"]])[0] for one in lines]
    assert found["alternatives"] == ["\n".join(second)]


def test_too_many_lines_and_long_lines_are_placed_in_q(served: Served) -> None:
    """A client knows nothing of the server's own form."""
    with served(texts=3, characters=5) as client:
        client.service.languages = None
        lines = client.post({"q": "a\nb\nc\nd", "target": "xx"}).json()
        long = client.post({"q": ["a\nb", "too long"], "target": "xx"}).json()

    assert [one["place"] for one in lines["errors"]] == ["/q"]
    assert [one["place"] for one in long["errors"]] == ["/q/1"]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ({"data": {"q": "sun", "target": "de"}}, 415),
        ({"content": b'{"q": ', "headers": {"content-type": "application/json"}}, 400),
        (
            {"content": b"{}" + b" " * (1 << 20), "headers": {"content-type": "application/json"}},
            413,
        ),
    ],
)
def test_errors_before_the_form_is_known_have_both_forms_too(
    served: Served, request_: dict[str, Any], status: int
) -> None:
    """A form body, a body that is not JSON, and one that is too large."""
    with served(body=1 << 16) as client:
        answer = client.post(**request_)

    assert answer.status_code == status
    assert answer.json()["error"] == answer.json()["errors"][0]["problem"]


@pytest.mark.parametrize(
    ("change", "status", "place"),
    [
        ({"target": "fr"}, 400, "/target"),
        ({"source": "fr"}, 400, "/source"),
        ({"format": "html"}, 422, "/format"),
        ({"q": 1}, 422, "/q/0"),
        ({"q": ["a"] * 4}, 422, "/q"),
        ({"target": None}, 422, "/target"),
        ({"alternatives": 99}, 422, "/search/beam"),
        ({"alternatives": 1000}, 422, "/alternatives"),
    ],
)
def test_errors_have_both_forms(
    served: Served, change: dict[str, Any], status: int, place: str
) -> None:
    """LibreTranslate's clients read `error`."""
    with served(texts=3) as client:
        client.service.languages = Languages("en", "de")
        answer = client.post({"q": "sun", "source": "en", "target": "de", **change})

    assert answer.status_code == status
    [error] = answer.json()["errors"]
    assert error["place"] == place
    assert answer.json()["error"] == error["problem"]


def test_languages_come_from_the_training_data() -> None:
    """From mtdata, or from the suffixes of the files; otherwise they are unknown."""

    def found(**train: Any) -> Languages | None:
        return languages_of(Split.model_validate(train), ("source", "target"))

    def lines(source: str, target: str) -> dict[str, Any]:
        return {"lines": {"source": [source], "target": [target]}}

    def corpora(*languages: str) -> dict[str, Any]:
        return {"mtdata": {"names": ["statmt-europarl-10-deu-eng"], "languages": languages}}

    assert found(**lines("a/train.en", "a/train.de")) == ("en", "de")
    assert found(**lines("t.en.gz", "t.pt-BR.gz")) == ("en", "pt-BR")
    assert found(**corpora("eng", "deu")) == ("en", "de")
    assert found(**corpora("tlh", "deu")) == ("tlh", "de")
    for unknown in (
        lines("train.source", "train.target"),
        lines("a.txt", "b.txt"),
        lines("train", "train"),
        {"lines": {"other": ["a.en"]}},
        {"jsonl": {"files": ["a.en"]}},
    ):
        assert found(**unknown) is None


def test_languages_are_listed(served: Served) -> None:
    """The source language with the target language it is translated to."""
    with served() as client:
        client.service.languages = Languages("en", "tlh")
        found = client.get("/languages").json()

    assert found == [
        {"code": "en", "name": "English", "targets": ["tlh"]},
        {"code": "tlh", "name": "tlh", "targets": []},
    ]
    assert listed(None) == []


def test_a_service_knows_the_languages_of_its_training(served: Served, toy_run: Any) -> None:
    """The toy corpus has the files train.src and train.tgt."""
    assert toy_run().data.train.settings.groups["source"] == ("train.src",)
    with served() as client:
        assert client.get("/languages").json() == [
            {"code": "src", "name": "src", "targets": ["tgt"]},
            {"code": "tgt", "name": "tgt", "targets": []},
        ]
