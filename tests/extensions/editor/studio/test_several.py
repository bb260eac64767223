"""Edits of several nodes at once, and new names for nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from weft.extensions.editor.studio.checked_text import read
from weft.extensions.editor.studio.edits import Editor
from weft.specs.findings import InputError
from weft.specs.reader import SHIPPED, read_json

BASE = SHIPPED / "models" / "transformer-base.json"
TEXT = BASE.read_text()
ATTENTION = ["encoder.*.self_attention", "decoder.*.self_attention", "decoder.*.cross_attention"]
CHILD = """{
  "format": 1,
  "extends": "transformer-base",
  "name": "child",
  "patch": [{"select": "**/f[use=attention@1]", "set": {"params.kv_heads": 2}}]
}
"""


def editor(text: str = TEXT, source: str | Path = BASE) -> Editor:
    """Return the editor of a text."""
    return Editor(read(text, str(source)))


def test_a_param_of_several_nodes_is_set_where_each_is_written() -> None:
    """One that they have is replaced, one that they have not is added, and nothing else changes."""
    value = json.loads(TEXT)
    for path in ATTENTION:
        stack, _, name = path.split(".")
        record = value["blocks"][f"{stack}_layer"]["nodes"][name]
        record["params"]["order"] = "pre"
        record["fill"]["f"]["params"]["kv_heads"] = 2

    made = editor().set_all(ATTENTION, {"params.order": "pre"}, [])
    made = editor(made).set_all([f"{path}/f" for path in ATTENTION], {"params.kv_heads": 2}, [])

    assert json.loads(made) == value
    back = editor(made).set_all([f"{path}/f" for path in ATTENTION], {}, ["params.kv_heads"])
    assert editor(back).set_all(ATTENTION, {"params.order": "post"}, []) == TEXT


def test_copies_of_a_repeat_are_one_record() -> None:
    """As they are drawn one by one."""
    paths = ["encoder.0.feed_forward", "encoder.1.feed_forward", "encoder.*.feed_forward"]
    made = editor().set_all(paths[2:], {"params.residual": "rezero"}, [])
    assert made.count("rezero") == 1
    assert editor().set_all([paths[2], paths[2]], {"params.residual": "rezero"}, []) == made


def test_what_a_parent_writes_is_patched_with_one_selection(tmp_path: Path) -> None:
    """And a key that a patch of this file writes for all of them is changed, or removed, once."""
    source = tmp_path / "child.json"
    made = editor(CHILD, source).set_all(ATTENTION, {"params.order": "pre"}, [])
    patch = {"select": "**.*_attention", "set": {"params.order": "pre"}}
    assert read_json(made, "x")["patch"][1:] == [patch]
    inner = [f"{path}/f" for path in ATTENTION]
    made = editor(CHILD, source).set_all(inner, {"params.kv_heads": 4}, [])
    assert made == CHILD.replace('"params.kv_heads": 2', '"params.kv_heads": 4')
    made = editor(CHILD, source).set_all(inner, {}, ["params.kv_heads"])
    assert "kv_heads" not in made


def test_a_node_is_renamed_in_wires_ties_and_outputs(tmp_path: Path) -> None:
    """As if every whole word were replaced; another node with a longer name is not touched."""
    source = tmp_path / "mine.json"
    made = editor(TEXT, source).rename("head", "scores")
    wanted = TEXT.replace('"head":', '"scores":').replace('"head.', '"scores.')
    assert made == wanted
    assert not read(made, str(BASE)).errors
    made = editor(TEXT, source).rename("decoder.*.self_attention", "first")
    layer = json.loads(made)["blocks"]["decoder_layer"]["nodes"]
    assert [*layer] == ["first", "cross_attention", "feed_forward"]
    assert layer["cross_attention"]["in"]["x"] == "first.y"
    assert "self_attention" in json.loads(made)["blocks"]["encoder_layer"]["nodes"]


def test_a_node_that_a_patch_inserts_is_renamed_in_the_patches(tmp_path: Path) -> None:
    """Where it is inserted, and where another patch wires it."""
    text = """{
  "format": 1,
  "extends": "transformer-base",
  "name": "child",
  "patch": [
    {"select": "/", "set": {"nodes.layer_norm": {"use": "layer_norm@1", "in": {"x": "decoder.x"}}}},
    {"select": "head", "set": {"in.x": "layer_norm.y"}}
  ]
}
"""
    made = editor(text, tmp_path / "child.json").rename("layer_norm", "decoder_norm")
    assert made == text.replace("nodes.layer_norm", "nodes.decoder_norm").replace(
        "layer_norm.y", "decoder_norm.y"
    )


@pytest.mark.parametrize(
    ("path", "new", "problem"),
    [
        ("head", "encoder", "'encoder' is taken"),
        ("head", "2nd", "is not a name"),
        ("nothing", "x", "is not a node"),
        ("encoder.*.self_attention/f", "x", "is not a node"),
    ],
)
def test_a_name_that_cannot_be_given_is_refused(path: str, new: str, problem: str) -> None:
    """With the reason."""
    with pytest.raises(InputError, match=problem):
        editor().rename(path, new)


def test_a_name_that_another_file_writes_or_uses_stays(tmp_path: Path) -> None:
    """The studio changes one file, so it names the other one."""
    with pytest.raises(InputError, match="'head' is written in another file"):
        editor(CHILD, tmp_path / "child.json").rename("head", "scores")
    base = tmp_path / "base.json"
    base.write_text(TEXT)
    patch = [{"select": "head", "set": {"params.bias": True}}]
    child = {"format": 1, "extends": "base", "name": "child", "patch": patch}
    (tmp_path / "child.json").write_text(json.dumps(child))
    with pytest.raises(InputError, match=r"'child\.json' uses the name 'head'"):
        editor(TEXT, base).rename("head", "scores")
    assert '"decode.x"' in editor(TEXT, base).rename("decoder", "decode")
