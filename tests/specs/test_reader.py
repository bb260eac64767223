"""Tests of the reader: every file gives a record or findings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.specs.findings import MOST, InputError, SpecError
from weft.specs.form import SpecForm
from weft.specs.json_tree import DEEPEST
from weft.specs.reader import LARGEST, find, parse, read_json, read_text, read_value

Count = Callable[[Callable[[], object]], int]

SMALL: dict[str, Any] = {
    "format": 1,
    "name": "small",
    "axes": {"B": "batch"},
    "inputs": {"x": "f[B 4]"},
    "outputs": {"y": "map.y"},
    "blocks": {
        "twice": {"inputs": {"x": "f[B 4]"}, "outputs": {"x": "x"}, "nodes": {}},
    },
    "nodes": {
        "map": {"use": "linear@1", "in": {"x": "x"}, "fill": {"f": {"use": "relu@1"}}},
        "again": {"repeat": 2, "block": "twice", "carry": ["x"], "in": {"x": "x"}},
    },
    "step": {"axis": "B"},
}


def places(text: str) -> list[tuple[str, str]]:
    """Return code and pointer of all findings of a text."""
    with pytest.raises(SpecError) as error:
        parse(SpecForm, read_json(text, "spec.json"), "spec.json")
    return [(finding.code, finding.at) for finding in error.value.findings]


def test_json_becomes_the_same_value() -> None:
    """As the `json` module reads it."""
    assert read_json(json.dumps(SMALL), "spec.json") == SMALL


@settings(max_examples=50)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=9))
def test_any_json_is_read_back(value: Any) -> None:
    """Brackets and quotes inside strings do not count as nesting."""
    assert read_json(json.dumps(value), "") == value


def test_every_duplicate_key_is_reported() -> None:
    """With the pointer of each, also inside lists and escaped names."""
    text = '{"a": [{"b": 1, "b": 2}], "c/d": {"e": 1, "e": 1}, "f": 1, "f": 2}'

    assert sorted(places(text)) == [("S02", "/a/0/b"), ("S02", "/c~1d/e"), ("S02", "/f")]


def test_a_duplicate_within_a_duplicate_has_no_pointer() -> None:
    """Only the outer duplicate has a pointer."""
    assert places('{"a": {"b": 1, "b": 2}, "a": 3}') == [("S02", "/a")]


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "{", "{'a': 1}", '{"a": NaN}', "[Infinity]", "-Infinity", "{} {}", '{"a": 01}'),
        *('{"a": 1e999}', "[" + "9" * 5000 + "]", "[0." + "1" * 500 + "]", '"\n"', '"\\x"', "nul"),
    ],
)
def test_invalid_json_is_refused(text: str) -> None:
    """Also NaN, infinities and huge numbers, which Python's parser accepts."""
    assert places(text) == [("S01", "")]


@pytest.mark.parametrize("text", [r'{"doc": "\ud800"}', r'{"\uDC00x": 1}', r'[["a\ud83d b"]]'])
def test_half_a_character_is_not_json(text: str) -> None:
    """No file could be written with it; both halves together, or a backslash, are text."""
    assert places(text) == [("S01", "")]
    assert read_json(r'{"doc": "\ud83d\ude00 \\ud800"}', "a") == {
        "doc": "\N{GRINNING FACE} \\ud800"
    }


def test_depth_is_bounded() -> None:
    """The limit itself is allowed, and an excessive depth is rejected quickly."""
    nest = "[" * DEEPEST + "]" * DEEPEST

    assert read_json(nest, "") is not None
    assert places(f"[{nest}]") == [("S06", "")]
    assert places("[" * (LARGEST - 1)) == [("S06", "")]


@pytest.mark.integration
def test_many_duplicates_are_found_in_linear_time(count_calls: Count) -> None:
    """The work grows with the text, not with its square."""

    def text(count: int) -> str:
        return '{"a": [' + ", ".join(['{"b": 1, "b": 2}'] * count) + "]}"

    found = places(text(20_000))

    assert found[0] == ("S02", "/a/0/b")
    assert found[-1] == ("S08", "")
    assert len(found) == MOST + 1
    few, many = (count_calls(lambda n=n: places(text(n))) for n in (2_000, 4_000))  # type: ignore[misc]
    assert many < 2.1 * few


@pytest.mark.parametrize(
    ("at", "record", "key", "meant"),
    [
        ("", SMALL, "outputts", "outputs"),
        ("/blocks/twice", SMALL["blocks"]["twice"], "node", "nodes"),
        ("/nodes/map", SMALL["nodes"]["map"], "usee", "use"),
        ("/nodes/map/fill/f", SMALL["nodes"]["map"]["fill"]["f"], "para", "params"),
        ("/nodes/again", SMALL["nodes"]["again"], "blok", "block"),
        ("/step", SMALL["step"], "axes", "axis"),
    ],
)
def test_an_unknown_key_suggests_the_nearest(at: str, record: Any, key: str, meant: str) -> None:
    """In each kind of record, among the keys of that record."""
    record[key] = 1
    try:
        with pytest.raises(SpecError) as error:
            parse(SpecForm, SMALL, "spec.json")
    finally:
        del record[key]

    assert [(f.code, f.at, f.help) for f in error.value.findings] == [
        ("S03", f"{at}/{key}", f"did you mean '{meant}'?")
    ]


@pytest.mark.parametrize(
    ("at", "value", "code", "there"),
    [
        ("nodes", {"map": 3}, "S04", "/nodes/map"),
        ("nodes", {"map": {}}, "S04", "/nodes/map"),
        ("nodes", {"use": {"use": 5}}, "S04", "/nodes/use/use"),
        (
            "nodes",
            {"re": {"repeat": 2, "block": 3, "carry": []}},
            "S04",
            "/nodes/re/block",
        ),
        ("nodes", {"map": {"use": "a", "in": {"x": 1}}}, "S04", "/nodes/map/in/x"),
        ("nodes", {"map": {"use": "a", "in": {"1x": "x"}}}, "N06", "/nodes/map/in/1x"),
        ("nodes", {"map": {"use": "a", "fill": {"f": []}}}, "S04", "/nodes/map/fill/f"),
        ("nodes", {"a b": {"use": "a"}}, "N06", "/nodes/a b"),
        ("nodes", {"a/b": {"use": "a"}}, "N06", "/nodes/a~1b"),
        ("inputs", [], "S04", "/inputs"),
        ("outputs", {}, "S04", "/outputs"),
        ("require", "a == b", "S04", "/require"),
        ("require", ["a == b", 7], "S04", "/require/1"),
        ("tie", [["a", 3]], "S04", "/tie/0/1"),
        ("axes", {"b": "batch"}, "N06", "/axes/b"),
        ("axes", {"B": "space"}, "S04", "/axes/B"),
        ("name", "", "N06", "/name"),
        ("name", None, "S04", "/name"),
        ("format", 3, "S05", "/format"),
        ("format", "1", "S05", "/format"),
        ("doc", {}, "S04", "/doc"),
        ("step", "B", "S04", "/step"),
        ("blocks", {"b": {"inputs": {}, "outputs": {}, "nodes": {}}}, "S04", "/blocks/b/outputs"),
    ],
)
def test_a_wrong_value_is_found_in_its_place(at: str, value: Any, code: str, there: str) -> None:
    """One finding each, with a pointer to the value."""
    assert places(json.dumps({**SMALL, at: value})) == [(code, there)]


@pytest.mark.parametrize("key", ["format", "name", "axes", "inputs", "outputs", "nodes"])
def test_a_key_that_is_missing_is_named(key: str) -> None:
    """The finding points at the incomplete record."""
    with pytest.raises(SpecError) as error:
        parse(SpecForm, {k: v for k, v in SMALL.items() if k != key}, "spec.json")

    assert [(f.code, f.at, f.help) for f in error.value.findings] == [("S04", "", f"add '{key}'")]


@pytest.mark.parametrize("text", ["[]", "3", '"spec"', "null"])
def test_a_file_that_is_not_an_object(text: str) -> None:
    """One finding for the file."""
    assert places(text) == [("S04", "")]


def test_all_mistakes_of_form_come_at_once() -> None:
    """Three mistakes give three findings."""
    spec = {**SMALL, "doc": 3, "axes": {"B": "space"}, "extra": 1}

    found = places(json.dumps(spec))

    assert sorted(found) == [
        ("S03", "/extra"),
        ("S04", "/axes/B"),
        ("S04", "/doc"),
    ]


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    """Some editors write one."""
    path = tmp_path / "spec.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(SMALL).encode())

    value, source = read_value(path)
    assert value == SMALL
    assert source == str(path)


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    """The error gives the position of the first invalid byte."""
    path = tmp_path / "spec.json"
    path.write_bytes(b'{"doc": "\xe4"}')

    with pytest.raises(InputError, match="not UTF-8") as error:
        read_text(path)

    assert error.value.location == f"{path}, byte 9"


def test_bytes_are_bounded(tmp_path: Path) -> None:
    """A large file is reported as large even if the cut splits a character."""
    path = tmp_path / "spec.json"
    path.write_bytes("ä".encode() * LARGEST)

    with pytest.raises(InputError, match="larger than"):
        read_text(path)


def test_a_folder_is_not_read(tmp_path: Path) -> None:
    """The error contains the reason given by the operating system."""
    with pytest.raises(InputError, match="cannot read the file"):
        read_text(tmp_path)


@pytest.mark.parametrize("name", ["a" * 5000, "a\0b.json", "x/" * 2000])
def test_a_name_that_no_file_can_have(name: str) -> None:
    """The result is an InputError, not an OSError."""
    with pytest.raises(InputError):
        find(name, "models")


def test_a_shipped_name_gives_its_file() -> None:
    """Without a path."""
    assert find("transformer-base", "models").name == "transformer-base.json"


def test_a_similar_file_in_the_folder_is_suggested(tmp_path: Path) -> None:
    """A misspelled path gets the name of a similar file in its folder."""
    (tmp_path / "mine.json").write_text("{}")

    with pytest.raises(InputError, match="no such file") as error:
        find(str(tmp_path / "mime.json"), "models")

    assert error.value.help == f"did you mean '{tmp_path / 'mine.json'}'?"


def test_a_name_without_its_suffix_suggests_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`mine` gets the suggestion `mine.json`, not a shipped name."""
    monkeypatch.chdir(tmp_path)
    Path("mine.json").write_text("{}")

    with pytest.raises(InputError) as error:
        find("mine", "models")

    assert error.value.help == "did you mean 'mine.json'?"


def test_a_folder_is_reported_as_a_folder(tmp_path: Path) -> None:
    """The message does not say that it is missing, nor suggest the folder itself."""
    folder = tmp_path / "mine.json"
    folder.mkdir()

    with pytest.raises(InputError, match="this is a folder"):
        find(str(folder), "models")


def test_a_link_to_nothing_is_not_its_own_suggestion(tmp_path: Path) -> None:
    """The help must not suggest the broken link."""
    link = tmp_path / "mine.json"
    link.symlink_to(tmp_path / "gone.json")

    with pytest.raises(InputError, match="no such file") as error:
        find(str(link), "models")

    assert "did you mean" not in error.value.help


def test_a_missing_file_is_not_compared_with_shipped_names() -> None:
    """A command that reads a file alone must not say that the name is not shipped."""
    with pytest.raises(InputError, match="no such file"):
        find("transformer-base")


def test_a_missing_file_without_a_similar_one_has_a_way_out_too(tmp_path: Path) -> None:
    """Where names of shipped files are possible, they are a way out."""
    with pytest.raises(InputError, match="no such file") as error:
        find(str(tmp_path / "mine.json"), "models")
    assert error.value.help == "give the path of a file, or a name that 'weft list' prints"

    with pytest.raises(InputError, match="no such file") as error:
        find(str(tmp_path / "mine.json"))
    assert error.value.help == "give the path of a file"


def test_a_file_in_a_closed_folder_is_not_called_a_wrong_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As another user sees it; the tests may run as root, who can open every folder."""

    def refused(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refused)

    with pytest.raises(InputError, match="cannot be read: Permission denied") as caught:
        find("closed/spec.json", "models")

    assert caught.value.location == "closed/spec.json"
