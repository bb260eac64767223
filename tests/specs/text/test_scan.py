"""Tests of comments and trailing commas in JSON texts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.specs.findings import SpecError
from weft.specs.reader import read_json
from weft.specs.text.scan import DEEPEST, has_comments, without_comments

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.sampled_from(["//", "/*"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)
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
    assert not has_comments(text)


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
