"""Pages: the documentation needs no other server, and the model describes itself."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from html.parser import HTMLParser
from importlib.metadata import version
from typing import Any

import pytest
from weft.extensions.serve.pages import page
from weft.runtime import api

pytestmark = pytest.mark.integration

Served = Callable[..., AbstractContextManager[Any]]


class Seen(HTMLParser):
    """Collects tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        """Read a page."""
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """Collect a tag."""
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Compare a tag with the one that it closes."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Collect text."""
        self.text += data


def test_the_documentation_loads_nothing(served: Served) -> None:
    """It has no script and no address of another server, and its policy allows its style only."""
    with served() as client:
        answer = client.get("/docs")
        schema = client.get("/openapi.json").json()

    policy, seen = answer.headers["content-security-policy"], Seen(answer.text)
    [style] = re.findall(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert answer.headers["content-type"].startswith("text/html")
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'; ")
    assert not re.search(r"unsafe|\*|http", policy)
    assert "script" not in {tag for tag, _ in seen.tags}
    assert not any("src" in attributes for _, attributes in seen.tags)
    links = {attributes["href"] for _, attributes in seen.tags if "href" in attributes}
    names = {f"#{name}" for name in schema["components"]["schemas"]}
    assert links <= names | {"openapi.json"}
    assert seen.open == []
    for path in schema["paths"]:
        assert path in seen.text
    for form in ("Ask", "LibreAsk", "RequestOptions"):
        for key in schema["components"]["schemas"][form]["properties"]:
            assert key in seen.text


def test_text_of_the_page_is_escaped() -> None:
    """Names of a spec and of its columns appear in it, also within attributes."""
    hostile = '"><script>alert(1)</script>'
    texts = {"title": hostile, "description": hostile}
    kinds = [{"enum": [hostile]}, {"type": hostile}, {"$ref": f"#/{hostile.replace('/', '')}"}]
    content = {"content": {"json": {"schema": {"anyOf": kinds}}}}
    route = {**texts, "requestBody": content, "responses": {hostile: {**texts, **content}}}
    field = {**texts, "default": hostile, "anyOf": kinds}
    schema = {**texts, "properties": {hostile: field}, "examples": [{hostile: hostile}]}
    description = {
        "info": texts,
        "paths": {hostile: {hostile: route}},
        "components": {"schemas": {hostile: schema}},
    }

    written = page(description)

    assert "<script" not in written.lower()
    assert written.lower().count("&quot;&gt;&lt;script&gt;") == 28


def test_the_model_describes_itself(served: Served, model: api.Model) -> None:
    """Everything that a client needs to choose it and to send valid requests."""
    with served(texts=7) as client:
        found = client.get("/v1/model").json()

    assert found["name"] == model.graph.name
    assert found["parameters"] == sum(one.numel() for one in set(model.module.parameters()))
    assert found["fingerprint"] == model.checkpoint.state["fingerprint"]
    assert found["vocabulary"]["target"] == model.line_predictor().target.vocab_size
    assert found["limits"]["texts"] == 7
    assert found["search"]["beam"] == model.search.beam
    assert found["weft"] == version("weft")
