"""Tests of edits: the value changes as JSON Patch says, and the rest of the text stays."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from weft.specs.findings import pointer
from weft.specs.json_tree import blanked
from weft.specs.reader import read_json
from weft.specs.text_edits import EditError, PatchOperation, edited

from .test_tree import VALUES, decorated

LINES = """{
  // widths
  "params": {
    "heads": 8, // heads
    "width": 512,
  },
  "axes": {"B": "batch", "T": "time"},
  "require": [],
  "allow": ["D02", "D03"]
}
"""


def records(value: Any, at: str = "") -> list[tuple[str, Any]]:
    """Return every object and list inside a value, with its pointer."""
    if not isinstance(value, dict | list):
        return []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = [(at, value)]
    for key, inner in items:
        found += records(inner, at + pointer(key))
    return found


@pytest.mark.integration
@given(VALUES, VALUES, st.randoms(use_true_random=False))
def test_an_edit_changes_the_value_as_json_patch_says(
    value: Any, new: Any, rng: random.Random
) -> None:
    """Whatever comments and commas surround the place; expected by editing the value itself."""
    text = decorated(value, rng)
    wanted = copy.deepcopy(value)
    found = records(wanted)
    assume(found)
    at, record = rng.choice(found)
    keys = list(record) if isinstance(record, dict) else list(range(len(record)))
    kind = rng.choice(["add", "remove", "replace", "move"])
    if kind == "add":
        key = "new key" if isinstance(record, dict) else len(record)
        edit = PatchOperation("add", at + pointer(key), new)
        record.update({key: new}) if isinstance(record, dict) else record.append(new)
    else:
        assume(keys)
        key = rng.choice(keys)
        here = at + pointer(key)
        if kind == "remove":
            edit = PatchOperation("remove", here)
            del record[key]
        elif kind == "replace":
            edit = PatchOperation("replace", here, new)
            record[key] = new
        else:
            assume(isinstance(record, dict))
            edit = PatchOperation("move", at + pointer("new/key"), old=here)
            record["new/key"] = record.pop(key)

    made = edited(text, [edit])

    assert read_json(made, "a.json") == wanted
    if blanked(text)[0] != text and kind in ("add", "move"):
        assert blanked(made)[0] != made


@pytest.mark.parametrize(
    ("edit", "old", "new"),
    [
        (PatchOperation("replace", "/params/heads", 4), '"heads": 8,', '"heads": 4,'),
        (PatchOperation("move", "/params/d_model", old="/params/width"), '"width"', '"d_model"'),
        (PatchOperation("remove", "/params/width"), '    "width": 512,\n', ""),
        (PatchOperation("add", "/params/layers", 6), "512,\n", '512,\n    "layers": 6,\n'),
        (PatchOperation("add", "/axes/S", "time"), '"time"}', '"time", "S": "time"}'),
        (PatchOperation("remove", "/axes/T"), ', "T": "time"}', "}"),
        (PatchOperation("remove", "/axes/B"), '"B": "batch", ', ""),
        (PatchOperation("add", "/require/0", "a == 1"), "[]", '["a == 1"]'),
        (PatchOperation("remove", "/allow/0"), '["D02", "D03"]', '["D03"]'),
        (PatchOperation("remove", "/allow/1"), '["D02", "D03"]', '["D02"]'),
    ],
)
def test_the_rest_of_the_text_stays(edit: PatchOperation, old: str, new: str) -> None:
    """Lines, indentation and comments are those of the text."""
    assert edited(LINES, [edit]) == LINES.replace(old, new, 1)


@pytest.mark.parametrize(
    "edit",
    [
        PatchOperation("replace", "/params/none", 1),
        PatchOperation("remove", "/nodes/a"),
        PatchOperation("add", "/params/heads", 1),
        PatchOperation("add", "/params/heads/x", 1),
        PatchOperation("move", "/params/width", old="/params/heads"),
        PatchOperation("move", "/axes/heads", old="/params/heads"),
        PatchOperation("move", "/allow/x", old="/allow/0"),
        PatchOperation("remove", ""),
    ],
)
def test_an_edit_that_cannot_be_made_is_an_error(edit: PatchOperation) -> None:
    """Nothing is guessed."""
    with pytest.raises(EditError):
        edited(LINES, [edit])


def test_edits_are_json_patches() -> None:
    """As RFC 6902 defines them."""
    assert PatchOperation("move", "/b", old="/a").as_json() == {
        "op": "move",
        "from": "/a",
        "path": "/b",
    }
    assert PatchOperation("add", "/a", None).as_json() == {"op": "add", "path": "/a", "value": None}
    assert PatchOperation("remove", "/a").as_json() == {"op": "remove", "path": "/a"}


def test_a_large_value_is_written_over_several_lines() -> None:
    """Indented as the line on which it begins."""
    new = {"use": "linear@1", "in": {"x": "decoder.x"}, "params": {"d_out": "=vocab", "bias": True}}

    made = edited(LINES, [PatchOperation("add", "/params/head", new)])

    assert '\n    "head": {\n      "use": "linear@1",' in made
    assert read_json(made, "")["params"]["head"] == json.loads(json.dumps(new))
