"""Clients of LibreTranslate: the same body and the same answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from weft.runtime import api
from weft.runtime.serve.libre import Languages, languages_of, listed

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

    def run(**train: Any) -> dict[str, Any]:
        return {"data": {"train": train}}

    assert languages_of(run(source=["a/train.en"], target=["a/train.de"])) == ("en", "de")
    assert languages_of(run(source=["t.en.gz"], target=["t.pt-BR.gz"])) == ("en", "pt-BR")
    assert languages_of(run(languages=["eng", "deu"])) == ("eng", "deu")
    for unknown in (
        run(source=["train.source"], target=["train.target"]),
        run(source=["a.txt"], target=["b.txt"]),
        run(source=["train"], target=["train"]),
        run(),
        {},
    ):
        assert languages_of(unknown) is None


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
