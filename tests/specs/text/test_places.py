"""Tests of lines and columns: where the parts of a JSON text stand."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.specs.findings import Finding, pointer
from weft.specs.json_tree import DEEPEST, Source, part_at, spot, tree, without_comments
from weft.specs.reader import read_json

from .test_tree import VALUES, decorated

TEXT = """{
  // sizes
  "params": {"heads": 8, "width": 5_12},
  "nodes": {
    "a": {"use": "linear@1"},
    "b/c": [1, [2, 3]]
  },
}
"""


def within(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the pointer and the value of every part of a value."""
    yield at, value
    keyed = enumerate(value) if isinstance(value, list) else ()
    for key, inner in value.items() if isinstance(value, dict) else keyed:
        yield from within(inner, at + pointer(key))


@pytest.mark.integration
@given(VALUES, st.randoms(use_true_random=False))
def test_every_part_is_found_where_it_stands(value: Any, rng: random.Random) -> None:
    """The text at the place of a part is the JSON of its value, and that at its key, of its key."""
    text = decorated(value, rng)

    for at, inner in within(value):
        part, exact = part_at(text, at)
        assert exact
        assert read_json(text[part.start : part.end], "") == inner
        if part.key:
            key = json.loads(text[slice(*part.key)])
            assert at.endswith(pointer(key))


@given(st.text(max_size=80))
def test_any_text_has_places(text: str) -> None:
    """A text that is not JSON gives some places, all of them inside it."""
    for value in tree(text).walk():
        assert 0 <= value.start <= value.end <= len(text)
    spot(text, "/a/b", key=True)
    spot(text, "", len(text) + 3)


@pytest.mark.parametrize(
    ("at", "key", "line", "column", "marked"),
    [
        ("/params/heads", False, 3, 23, "8"),
        ("/params/heads", True, 3, 14, '"heads"'),
        ("/nodes/a/use", False, 5, 18, '"linear@1"'),
        ("/nodes/b~1c/1/0", False, 6, 17, "2"),
        ("/nodes", False, 4, 3, '"nodes"'),
        ("/nodes/a/in/x", False, 5, 5, '"a"'),
        ("", False, 1, 1, "{"),
    ],
)
def test_lines_and_columns(at: str, key: bool, line: int, column: int, marked: str) -> None:
    """Counted by hand; what spans lines, or is missing, is shown by the key nearest to it."""
    found = spot(TEXT, at, key=key)

    assert (found.line, found.column) == (line, column)
    assert TEXT.splitlines()[line - 1][column - 1 :].startswith(marked)
    assert found.end_column - found.column == len(marked)


def test_a_finding_quotes_its_line() -> None:
    """With the number of the line, and marks under the value."""
    finding = Finding(
        code="P01", at="/params/heads", problem="wrong", source=Source("a.json", TEXT)
    )

    assert finding.render() == (
        "error[P01]: wrong\n"
        "  --> a.json:3:23  #/params/heads\n"
        '    3 |   "params": {"heads": 8, "width": 5_12},\n'
        "      |                       ^"
    )
    assert finding.as_json()["line"] == 3
    assert finding.as_json()["end_column"] == 24


def test_a_long_line_is_quoted_around_the_place() -> None:
    """A file on one line is not printed as a whole."""
    text = json.dumps({f"k{i}": "x" * 20 for i in range(500)})
    finding = Finding(code="P01", at="/k250", problem="wrong", source=Source("a.json", text))

    quoted, marks = finding.render().splitlines()[2:]

    assert len(quoted) < 110
    begin = marks.index("^")
    assert quoted[begin : begin + marks.count("^")] == f'"{"x" * 20}"'


def test_a_source_is_a_name_with_a_text() -> None:
    """It equals the name, and workers send it with its text."""
    source = Source("a.json", TEXT)

    assert source == "a.json"
    assert json.dumps(source) == '"a.json"'
    copy = pickle.loads(pickle.dumps(source))
    assert (copy, copy.text) == ("a.json", TEXT)


def test_the_scan_of_a_broken_text_ends() -> None:
    """An unclosed comment leaves the text as it is."""
    assert without_comments("{/*")[0] == "{/*"


def test_a_text_that_is_nested_too_deeply_has_no_parts() -> None:
    """A tree of 300,000 levels would take 140 MB, to show a finding about the whole file."""
    assert tree("[" * 300_000).entries == []
    assert tree("[" * DEEPEST + "]" * DEEPEST).entries != []
