"""Tests of the tree of a JSON text, and of comments and trailing commas in it."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.specs import json_tree as tree_module
from weft.specs.findings import SpecError
from weft.specs.json_tree import DEEPEST, tree, without_comments
from weft.specs.reader import SHIPPED, read_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.sampled_from(["//", "/*"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)
TEXT = (SHIPPED / "models" / "transformer-base.json").read_text()
COMMENTS = ("", " ", "// note\n", "/* note */", '/* " { [ , */', "//\n", "/**/", "\n\t")


def decorated(value: Any, rng: random.Random) -> str:
    """Return a value as JSON, with comments between all tokens and commas after last entries."""

    def gap() -> str:
        return rng.choice(COMMENTS)

    def entries(parts: list[str]) -> str:
        joined = f"{gap()},{gap()}".join(parts)
        return joined + (f"{gap()},{gap()}" if parts and rng.random() < 0.5 else gap())

    if isinstance(value, dict):
        pairs = [
            f"{gap()}{json.dumps(key)}{gap()}:{gap()}{decorated(inner, rng)}"
            for key, inner in value.items()
        ]
        return f"{{{entries(pairs)}}}"
    if isinstance(value, list):
        return f"[{entries([decorated(inner, rng) for inner in value])}]"
    return json.dumps(value)


@pytest.mark.integration
@given(VALUES, st.randoms(use_true_random=False))
def test_a_decorated_text_has_the_same_value(value: Any, rng: random.Random) -> None:
    """Comments and trailing commas change nothing, and every character stays in its place."""
    text = decorated(value, rng)

    assert read_json(text, "a.json") == value
    assert len(without_comments(text)[0]) == len(text)


@given(VALUES)
def test_plain_json_stays_as_it_is(value: Any) -> None:
    """Also if strings contain what looks like a comment or a trailing comma."""
    text = json.dumps([value, ",]", ", }", "/* */", "// a", '\\",]'])

    assert without_comments(text)[0] == text


@pytest.mark.parametrize(
    "text", ["[,]", "{,}", "[1,,]", "[1,,2]", '{"a":,}', ",", "[1],", "[/**/,]"]
)
def test_a_comma_that_follows_no_value_stays_an_error(text: str) -> None:
    """Only one comma after the last entry is permitted."""
    with pytest.raises(SpecError) as error:
        read_json(text, "a.json")

    assert [finding.code for finding in error.value.findings] == ["S01"]


@pytest.mark.parametrize(
    ("text", "place"),
    [('{"a": 1} /* no end', "1:10"), ("[1,\n2 3]", "2:3"), ('{"a": 1, // x\n "b" 2}', "2:6")],
)
def test_mistakes_are_placed_where_they_stand(text: str, place: str) -> None:
    """Comments before a mistake do not move it."""
    with pytest.raises(SpecError) as error:
        read_json(text, "a.json")

    [finding] = error.value.findings
    assert finding.problem.endswith(f"at {place}")


def test_brackets_in_comments_do_not_count() -> None:
    """A deep comment is not a deep file."""
    assert read_json("/* " + "[" * 2 * DEEPEST + " */ 1", "a.json") == 1


@pytest.mark.parametrize(
    "piece", ['\\"', "/*", "//", '"', "[1,", "/* */", ", ", " ", "\\", '"\\', "],", "{\n"]
)
def test_work_is_linear(piece: str, count_calls: Callable[[Callable[[], object]], int]) -> None:
    """Repeating any piece ten thousand times takes few calls, and ends."""

    def scan() -> None:
        without_comments('"' + piece * 10_000)
        without_comments("[" + piece * 10_000 + "]")

    assert count_calls(scan) < 300_000


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*/transformer-*.json")), ids=lambda p: p.stem)
def test_the_tolerant_reader_reads_correct_texts_as_the_strict_one(path: Path) -> None:
    """Else completion would see another spec than the checker."""
    assert tree(path.read_text()).json() == json.loads(path.read_text())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": {"b": "x', {"a": {"b": "x"}}),
        ('{"a": [1, {"b": , "c": 3]}', {"a": [1, {"c": 3}]}),
        ('{"a": {"in": {"x": "foo\n }, "c": 3}', {"a": {"in": {"x": "foo"}, "c": 3}}),
        ('{"a": 1 "b": tru}', {"a": 1, "b": "tru"}),
        ("]", None),
        ('{"a": "\\\\"}', {"a": "\\"}),
    ],
)
def test_broken_texts_are_read_as_far_as_possible(text: str, value: object) -> None:
    """A text is broken at most keystrokes."""
    assert tree(text).json() == value


def test_entries_are_complete_in_every_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that asks while another reads them waits for it."""
    value = tree('{"shared": {"b": 1, "c": 2}}').entries[0]
    began, may_go, key = threading.Event(), threading.Event(), tree_module._key

    def slow(text: str, span: tuple[int, int]) -> str:
        began.set()
        may_go.wait(10)
        return key(text, span)

    def names() -> list[str]:
        return [entry.name for entry in value.entries]

    monkeypatch.setattr(tree_module, "_key", slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(names)
        began.wait(10)
        second = pool.submit(names)
        wait([second], timeout=0.1)
        may_go.set()

    assert first.result() == second.result() == ["b", "c"]


@pytest.mark.integration
def test_correct_parts_of_a_broken_text_are_read_as_if_token_by_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The places inside a correct object are read only if they are asked for."""

    def read(text: str) -> list[object]:
        tree.cache_clear()
        found: list[object] = [tree(text).json()]
        found += [(v.path, v.kind, v.key, v.start, v.end, v.closed) for v in tree(text).walk()]
        return [*found, tree(text).json()]

    chance, texts = random.Random(1), [TEXT]
    for _ in range(60):
        at = chance.randrange(len(TEXT))
        cut = TEXT[:at] + chance.choice('{}[]",:\\\n 7') + TEXT[at + chance.randrange(3) :]
        texts.append(cut if chance.random() < 0.7 else cut[: chance.randrange(len(cut))])
    quick = [read(text) for text in texts]
    monkeypatch.setattr("weft.specs.json_tree.end_of", lambda *_: 0)
    assert quick == [read(text) for text in texts]
    tree.cache_clear()
