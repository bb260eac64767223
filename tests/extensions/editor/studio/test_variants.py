"""Variants: every edit of a spec can be written as a file that extends it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from weft.extensions.editor.studio.checked_text import CheckedText, read
from weft.extensions.editor.studio.edits import Editor, edit
from weft.extensions.editor.studio.variant import variant
from weft.runtime.spec.check import graph_of
from weft.specs.load import load
from weft.specs.reader import SHIPPED

BASE = SHIPPED / "models" / "transformer-base.json"
LINEAR: dict[str, Any] = {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": 4}}
SPEC: dict[str, Any] = {
    "format": 1,
    "name": "base",
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"ids": "ids:5[B T]"},
    "outputs": {"y": "out.y"},
    "blocks": {
        "inner": {
            "inputs": {"x": "f[B T 4]"},
            "outputs": {"y": "map.y"},
            "nodes": {"map": LINEAR},
        },
        "outer": {
            "inputs": {"x": "f[B T 4]"},
            "outputs": {"x": "two.y"},
            "nodes": {
                "one": {"use": "inner", "in": {"x": "x"}},
                "two": {"use": "inner", "in": {"x": "one.y"}},
            },
        },
    },
    "nodes": {
        "table": {"use": "embedding@1", "in": {"ids": "ids"}, "params": {"d_model": 4}},
        "stack": {"repeat": 3, "block": "outer", "carry": ["x"], "in": {"x": "table.y"}},
        "skip": {"use": "sublayer@1", "in": {"x": "stack.x"}, "fill": {"f": {"use": "inner"}}},
        "out": {"use": "linear@1", "in": {"x": "skip.y"}, "params": {"d_out": 5}},
    },
}
"""A template that two nodes and a slot use, inside a repeated one."""


def insert_before(value: dict[str, Any]) -> None:
    """Insert a norm before the map of the template."""
    nodes = value["blocks"]["inner"]["nodes"]
    nodes["norm"] = {"use": "layer_norm@1", "in": {"x": "x"}}
    nodes["map"]["in"] = {"x": "norm.y"}


def insert_after(value: dict[str, Any]) -> None:
    """Insert a norm after the map of the template."""
    template = value["blocks"]["inner"]
    template["nodes"]["norm"] = {"use": "layer_norm@1", "in": {"x": "map.y"}}
    template["outputs"] = {"y": "norm.y"}


def replace(value: dict[str, Any]) -> None:
    """Replace the map of the template."""
    node = {"use": "feed_forward@1", "in": {"x": "x"}, "params": {"d_ff": 8}}
    value["blocks"]["inner"]["nodes"]["map"] = node


def wrap(value: dict[str, Any]) -> None:
    """Put the map of the template into a slot."""
    inner = {"use": "linear@1", "params": {"d_out": 4}}
    node = {"use": "sublayer@1", "in": {"x": "x"}, "fill": {"f": inner}}
    value["blocks"]["inner"]["nodes"]["map"] = node


def remove(value: dict[str, Any]) -> None:
    """Remove a node of the repeated template."""
    template = value["blocks"]["outer"]
    del template["nodes"]["two"]
    template["outputs"] = {"x": "one.y"}


def new_input(value: dict[str, Any]) -> None:
    """Give the template an optional input that a new block reads."""
    template = value["blocks"]["inner"]
    template["inputs"]["mask"] = "mask[B T]?"
    node = {"use": "depthwise_convolution@1", "in": {"x": "x", "mask": "mask"}}
    template["nodes"]["map"] = {**node, "params": {"kernel": 3}}


def one_use(value: dict[str, Any]) -> None:
    """Let one of two nodes use a copy of the template."""
    value["blocks"]["other"] = copy.deepcopy(value["blocks"]["inner"])
    replace({"blocks": {"inner": value["blocks"]["other"]}})
    value["blocks"]["outer"]["nodes"]["two"]["use"] = "other"


def without_template(value: dict[str, Any]) -> None:
    """Use no template in the repeated one and in the slot."""
    value["nodes"]["skip"]["fill"]["f"] = {"use": "linear@1", "params": {"d_out": 4}}
    value["blocks"]["outer"] |= {"outputs": {"x": "one.y"}, "nodes": {"one": LINEAR}}
    del value["blocks"]["inner"]


@pytest.mark.parametrize(
    "edit",
    [
        insert_before,
        insert_after,
        replace,
        wrap,
        remove,
        new_input,
        one_use,
        without_template,
    ],
    ids=lambda edit: edit.__name__,
)
def test_an_edit_inside_templates_is_written_as_a_patch(
    edit: Callable[[dict[str, Any]], None], tmp_path: Path
) -> None:
    """The variant has the graph of the edited spec, for which its complete text is the measure."""
    edited = copy.deepcopy(SPEC)
    edit(edited)
    base, complete, small = (tmp_path / f"{name}.json" for name in ("base", "complete", "small"))
    base.write_text(json.dumps(SPEC))
    complete.write_text(json.dumps(edited))

    text, value = variant(
        read(base.read_text(), str(base)), read(json.dumps(edited), str(base)), "base", "base"
    )

    small.write_text(text)
    assert "nodes" not in value
    graphs = [graph_of(load(path)) for path in (small, complete)]
    assert graphs[0].root.weights() == graphs[1].root.weights()
    assert graphs[0].root == graphs[1].root


def test_an_insertion_before_a_repeated_sublayer_is_saved_as_a_variant(tmp_path: Path) -> None:
    """The layers of a stack are a template, which no path of a node selects."""
    old = read(BASE.read_text(), str(tmp_path / "base.json"))
    text = Editor(old).insert(
        "depthwise_convolution@1", "encoder.*.self_attention", "x", {"kernel": 3}
    )

    written, value = variant(old, read(text, old.source), "transformer-base", "convq")

    node = {"use": "depthwise_convolution@1", "params": {"kernel": 3}}
    inserted = {"depthwise_convolution": {**node, "in": {"x": "@", "mask": "mask"}}}
    select = "encoder.*.self_attention"
    assert value["patch"] == [{"select": select, "insert_before": inserted}]

    path = tmp_path / "convq.json"
    path.write_text(written)
    weights = graph_of(load(path)).root.weights()
    assert weights["encoder.5.depthwise_convolution.weight"] == (512, 1, 3)


def inserted(*paths: str) -> tuple[CheckedText, str]:
    """Return a variant of the Transformer with a norm before some nodes, and the base's text."""
    old = read(BASE.read_text(), str(BASE))
    new = old
    for path in paths:
        new = read(Editor(new).insert("rms_norm@1", path, "x", {}), old.source)
    text, _ = variant(old, new, "transformer-base", "normed")
    return read(text, str(BASE.parent / "normed.json")), new.text


def test_insertions_in_two_templates_are_one_patch() -> None:
    """Nodes of the same name in different templates are different nodes."""
    normed, _ = inserted("encoder.*.self_attention", "decoder.*.self_attention")
    node = {"rms_norm": {"use": "rms_norm@1"}}
    patch = {"select": "**.self_attention", "insert_before": node}
    assert json.loads(normed.text)["patch"] == [patch]


@pytest.mark.parametrize(
    "act",
    [
        lambda editor: editor.remove("encoder.*.rms_norm"),
        lambda editor: editor.insert("layer_norm@1", "encoder.*.rms_norm", "x", {}),
        lambda editor: editor.insert("layer_norm@1", "encoder.*.self_attention", "x", {}),
        lambda editor: editor.wire("encoder.*.self_attention", "x", "x"),
        lambda editor: editor.wire("encoder.*.feed_forward", "x", "rms_norm.y"),
        lambda editor: editor.set("encoder.*.rms_norm", {"params.eps": 0.1}),
        lambda editor: editor.swap("encoder.*.rms_norm", "layer_norm@1", {}),
    ],
    ids=["remove", "before", "after", "unwire", "wire", "set", "swap"],
)
def test_what_a_patch_inserted_is_edited(act: Callable[[Editor], str]) -> None:
    """The edited variant is the edited complete spec, whose wires no patch gives."""
    normed, complete = inserted("encoder.*.self_attention")

    after = read(edit(normed, act), normed.source)

    expected = read(act(Editor(read(complete, str(BASE)))), str(BASE))
    assert after.loaded is not None
    assert expected.loaded is not None
    for key in ("nodes", "blocks", "outputs", "params"):
        assert after.loaded.value()[key] == expected.loaded.value()[key]
    assert [each.code for each in after.errors] == [each.code for each in expected.errors]
    assert json.loads(after.text)["extends"] == "transformer-base"


def test_a_template_that_a_patch_leaves_without_use_is_left_out(tmp_path: Path) -> None:
    """It was used in the parent, whose file its child does not change."""
    node = {"use": "linear@1", "in": {"x": "source_position.y"}, "params": {"d_out": 512}}
    child = {"format": 1, "extends": "transformer-base", "name": "child"}
    path = tmp_path / "child.json"
    path.write_text(json.dumps({**child, "patch": [{"select": "encoder", "replace": node}]}))

    spec = load(path)

    assert [*spec.form.blocks] == ["decoder_layer"]
