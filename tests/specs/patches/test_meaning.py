"""Tests of patches against a reference on the expanded spec, path by path."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.specs.findings import Finding, Origins, SpecError
from weft.specs.inherit import extended
from weft.specs.json_tree import parts_of

MAP = {"use": "linear@1", "params": {"d_out": 4}, "fill": {"f": {"use": "relu@1"}}}
PORTS = {"inputs": {"x": "f[B 4]"}, "outputs": {"x": "a.y"}}
STACK = {"carry": ["x"], "in": {"x": "x"}}
ROOT: dict[str, Any] = {
    "format": 1,
    "name": "root",
    "axes": {"B": "batch"},
    "inputs": {"x": "f[B 4]"},
    "outputs": {"y": "top.y"},
    "blocks": {
        "layer": {**PORTS, "nodes": {"a": MAP, "b": MAP}},
        "block": {
            **PORTS,
            "nodes": {
                "a": MAP,
                "one": {"use": "layer", "in": {"x": "x"}},
                "many": {"repeat": 3, "block": "layer", "instead": {"1": "other"}, **STACK},
            },
        },
        "other": {**PORTS, "nodes": {"a": MAP}},
    },
    "nodes": {
        "left": {"use": "block"},
        "right": {"repeat": 2, "block": "block", **STACK},
        "same": {"repeat": 5, "block": "layer", "share": True, **STACK},
        "free": {"repeat": "=n", "block": "layer", **STACK},
        "top": MAP,
    },
    "params": {"n": 4},
}
"""Nested templates: used plainly, repeated, shared, and already split."""


def records(value: dict[str, Any], scope: Any = None, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every node and slot of an expanded spec as (path, record)."""
    for name, node in (scope or value)["nodes"].items():
        here = f"{path}{name}"
        yield here, node
        for slot, inner in node.get("fill", {}).items():
            yield f"{here}/{slot}", inner
        if "block" in node:
            count = 4 if node["repeat"] == "=n" else node["repeat"]
            for index in range(1 if node.get("share") else count):
                used = node.get("instead", {}).get(str(index), node["block"])
                number = "" if node.get("share") else f".{index}"
                yield from records(value, value["blocks"][used], f"{here}{number}.")
        elif node["use"] in value["blocks"]:
            yield from records(value, value["blocks"][node["use"]], f"{here}.")


def fits(select: str, path: str) -> bool:
    """Return whether a selection matches a path, using a regular expression."""
    text = ""
    pieces = re.split(r"([./])", select)
    for mark, word in zip([".", *pieces[1::2]], pieces[::2], strict=True):
        if word == "**":
            text += "(?:[./][a-z0-9]+)*"
        elif re.fullmatch(r"\d+-\d+", word):
            low, high = map(int, word.split("-"))
            text += f"[.](?:{'|'.join(map(str, range(low, high + 1)))})"
        elif word == "*":
            text += f"{re.escape(mark)}[a-z0-9]+"
        else:
            text += re.escape(mark) + word.replace("*", "[a-z]*")
    if select.endswith("**"):
        text += "[./][a-z0-9]+"
    return re.fullmatch(text, f".{path}") is not None


PATHS = [path for path, _ in records(ROOT)]


@st.composite
def selections(draw: st.DrawFn) -> str:
    """Draw a path with some segments widened, removed or made wrong."""
    text = ""
    for mark, word in re.findall(r"([./])([a-z0-9]+)", f".{draw(st.sampled_from(PATHS))}"):
        kind = draw(st.sampled_from(["as it is"] * 4 + ["*", "**", "range", "prefix", "wrong"]))
        if kind in ("*", "**"):
            text += mark + kind
        elif kind == "range" and word.isdigit():
            text += f"{mark}{draw(st.integers(0, int(word)))}-{word}"
        elif kind == "prefix" and not word.isdigit():
            text += f"{mark}{word[0]}*"
        else:
            text += f"{mark}b" if kind == "wrong" and mark == "." else mark + word
    return text[1:]


@st.composite
def patches(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw patches that each set one of a few keys to a unique value."""
    keys = ["doc", "params.d_out", "params.bias", "in.y"]
    return [
        {"select": draw(selections()), "set": {draw(st.sampled_from(keys)): f"{index}"}}
        for index in range(draw(st.integers(1, 4)))
    ]


@pytest.mark.integration
@given(patches())
def test_patches_change_what_they_select_and_nothing_else(written: list[dict[str, Any]]) -> None:
    """Each record of the expanded spec has the values set by the patches that match its path.

    Two patches that set the same key of a record conflict, and a selection without a match is
    empty; there is no other reason for an error.
    """
    child = {"format": 1, "extends": "root", "name": "child", "patch": written}
    wanted: dict[str, dict[str, str]] = {}
    empty, clash = set[int](), False
    for index, patch in enumerate(written):
        paths = [path for path, _ in records(ROOT) if fits(patch["select"], path)]
        [(key, value)] = patch["set"].items()
        if not paths:
            empty.add(index)
        for path in paths:
            clash |= key in wanted.setdefault(path, {})
            wanted[path][key] = value
    try:
        value, origins = extended(ROOT, Origins(("root.json", "")), child, "child.json")
    except SpecError as error:
        refused(error.findings, empty, clash=clash)
        return
    assert not empty
    assert not clash
    before = dict(records(ROOT))
    for path, record in records(value):
        expected = copy.deepcopy(before[path])
        for key, text in wanted.get(path, {}).items():
            *way, last = key.split(".")
            here = expected
            for part in way:
                here = here.setdefault(part, {})
            here[last] = text
        for key in ("use", "block", "instead"):  # a split template has a new name
            expected.pop(key, None)
        assert plain(record, path, before[path]) == without_inner(expected)
    assert before.keys() == {path for path, _ in records(value)}
    assert origins.of(parts_of("/nodes/top/use")) == ("root.json", "/nodes/top/use")


def refused(findings: tuple[Finding, ...], empty: set[int], *, clash: bool) -> None:
    """Check that the patches were rejected for the expected reason."""
    codes = {finding.code for finding in findings}
    if codes & {"X01", "X09", "X06"}:
        # An index may be invalid at one place and valid at another; both are reported.
        missed = {int(f.at.split("/")[2]) for f in findings if f.code == "X01"}
        assert missed <= empty <= {int(f.at.split("/")[2]) for f in findings}
        assert codes <= {"X01", "X06", "X09"}
    else:
        assert codes == {"X03"}
        assert clash


def plain(record: dict[str, Any], path: str, before: dict[str, Any]) -> dict[str, Any]:
    """Return a record without names that may change, after checking its block."""
    if "@" in before.get("use", ""):
        assert record["use"] == before["use"], path
    kept = {key: v for key, v in record.items() if key not in ("use", "block", "instead")}
    return without_inner(kept)


def without_inner(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record without the blocks in its slots, which are separate records."""
    return {key: value for key, value in record.items() if key != "fill"}


@pytest.mark.parametrize(
    ("select", "path", "expected"),
    [
        ("**.a", "left.many.0.a", True),
        ("**.a", "a", True),
        ("left.**", "left", False),
        ("left.**", "left.a/f", True),
        ("left.**.a", "left.a", True),
        ("right.0-1.a", "right.1.a", True),
        ("right.*.a", "right.1.a", True),
        ("right.1.a", "right.0.a", False),
        ("m*", "many", True),
        ("top/*", "top/f", True),
    ],
)
def test_the_reference_reads_selections_as_people_do(
    select: str, path: str, expected: bool
) -> None:
    """The reference itself is correct."""
    assert fits(select, path) == expected
