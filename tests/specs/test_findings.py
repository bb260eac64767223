"""Tests of findings: their text, their JSON and their suggestions."""

from __future__ import annotations

import difflib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.specs.findings import (
    MOST,
    Finding,
    InputError,
    SpecError,
    at_most,
    did_you_mean,
    nearest,
    pointer,
)

FINDING = Finding(
    code="T03",
    at="/nodes/a/in/x",
    problem="axis is 512 but 256 at port 'x'",
    evidence=("given  f[B 256]", "wanted f[B 512]"),
    help="wire another value",
    source="mine.json",
)


def test_an_error_without_a_code_has_no_empty_brackets() -> None:
    """A missing file is shown as a finding, but no rule of specs was broken."""
    found = Finding(code="", at="", problem="no such file", source="a.json")

    assert found.render().startswith("error: no such file\n")


def test_a_finding_as_text() -> None:
    """Code and problem, place, both sides, help."""
    assert FINDING.render() == (
        "error[T03]: axis is 512 but 256 at port 'x'\n"
        "  --> mine.json#/nodes/a/in/x\n"
        "      given  f[B 256]\n"
        "      wanted f[B 512]\n"
        "  help: wire another value"
    )


def test_a_finding_without_help_has_no_such_line() -> None:
    """There is no empty help line."""
    assert Finding(code="S01", at="", problem="not JSON", source="a").render() == (
        "error[S01]: not JSON\n  --> a#"
    )


def test_a_finding_as_data() -> None:
    """Every field, under the names that editors expect."""
    assert json.loads(json.dumps(FINDING.as_json())) == {
        "code": "T03",
        "source": "mine.json",
        "pointer": "/nodes/a/in/x",
        "line": None,
        "column": None,
        "end_line": None,
        "end_column": None,
        "problem": "axis is 512 but 256 at port 'x'",
        "evidence": ["given  f[B 256]", "wanted f[B 512]"],
        "help": "wire another value",
        "level": "error",
        "fix": None,
    }


@given(st.text(), st.text())
def test_control_characters_are_escaped(word: str, source: str) -> None:
    """Control characters are escaped, and a line remains one line."""
    text = Finding(code="N01", at=pointer(word), problem=word, source=source).render()

    assert all(line.isprintable() for line in text.split("\n"))
    assert text.count("\n") == 1


def test_long_names_are_shortened() -> None:
    """A name of a megabyte is shortened."""
    text = Finding(code="N01", at="", problem="x" * 10**6, help="y" * 10**6).render()

    assert len(text) < 1000


def test_an_error_shows_all_findings() -> None:
    """Separated by empty lines, and stored as data."""
    error = SpecError([FINDING, FINDING])

    assert str(error) == f"{FINDING.render()}\n\n{FINDING.render()}"
    assert error.findings == (FINDING, FINDING)


def test_an_input_error_names_place_and_help() -> None:
    """The three parts are on separate lines, and also separate attributes."""
    error = InputError("no such file", location="a.json", help="did you mean 'b.json'?")

    assert str(error) == "no such file\n  --> a.json\n  help: did you mean 'b.json'?"
    assert (error.problem, error.location, error.help) == (
        "no such file",
        "a.json",
        "did you mean 'b.json'?",
    )
    assert str(InputError("no")) == "no"


@pytest.mark.parametrize("extra", [0, 1, 1000])
def test_a_long_list_of_findings_is_truncated(extra: int) -> None:
    """The last finding says so; a list of the maximum length is unchanged."""
    kept = at_most([FINDING] * (MOST + extra), "mine.json")

    assert len(kept) == MOST + (extra > 0)
    assert (kept[-1].code == "S08") == (extra > 0)


@pytest.mark.integration
@given(st.lists(st.text()))
def test_a_pointer_can_be_taken_apart_again(parts: list[str]) -> None:
    """Slashes and tildes in keys are preserved (RFC 6901, section 4)."""
    split = pointer(*parts).split("/")[1:]

    assert [part.replace("~1", "/").replace("~0", "~") for part in split] == parts


def test_a_pointer_by_hand() -> None:
    """The tilde is escaped before the slash."""
    assert pointer("a~1", 0, "b/c", "") == "/a~01/0/b~1c/"


@given(st.text("abc", max_size=5), st.lists(st.text("abc", max_size=5), max_size=8, unique=True))
def test_the_nearest_word_is_near(word: str, known: list[str]) -> None:
    """The result is known and no known name is nearer; otherwise none is near."""
    found = nearest(word, known)

    ratios = {name: difflib.SequenceMatcher(None, name, word).ratio() for name in known}
    assert found in known or not found
    assert not found or ratios[found] == max(ratios.values())
    assert found or "" in known or max(ratios.values(), default=0) < 0.6


def test_the_nearest_word_does_not_depend_on_order() -> None:
    """The order of keys in a spec does not change the suggestion."""
    names = ["head_a", "head_b", "head_c"]

    assert nearest("head", names) == nearest("head", names[::-1])


@pytest.mark.parametrize(
    ("word", "known", "help_"),
    [
        ("hedas", ["heads", "d_model"], "did you mean 'heads'?"),
        ("zzz", ["b", "a"], "known: a, b"),
        ("zzz", [], ""),
        ("zzz", [f"n{i:02}" for i in range(14)], "known: "),
        ("x" * 10**6, ["x" * 9], "known: xxxxxxxxx"),
    ],
)
def test_a_suggestion_is_the_nearest_or_the_list(word: str, known: list[str], help_: str) -> None:
    """The list has at most twelve names."""
    text = did_you_mean(word, known)

    assert text.startswith(help_)
    assert text.count(", ") <= 12
    assert text.endswith(", ...") == (len(known) > 12)
