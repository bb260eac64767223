"""Clicks that edit the text of a spec: exactly what changes, and nothing else."""

from __future__ import annotations

import difflib
import json
from pathlib import Path

import pytest
from weft.extensions.editor.studio.checked_text import look, read
from weft.extensions.editor.studio.edits import Editor
from weft.extensions.editor.studio.menu import menu
from weft.extensions.editor.studio.variant import variant
from weft.specs.findings import InputError
from weft.specs.reader import SHIPPED, read_json

BASE = SHIPPED / "models" / "transformer-base.json"
TEXT = BASE.read_text()
CHILD = """{
  "format": 1,
  "extends": "transformer-base",
  "name": "child", // a comment
  "patch": [{"select": "**/f[use=attention@1]", "set": {"params.kv_heads": 2}}]
}
"""


def changed(old: str, new: str) -> list[str]:
    """Return the lines that differ, without their indent."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm="")
    return [
        line[0] + line[1:].strip()
        for line in lines
        if line[0] in "+-" and line[:3] not in ("---", "+++")
    ]


def editor(text: str = TEXT, source: str = str(BASE)) -> Editor:
    """Return the editor of a text."""
    return Editor(read(text, source))


def test_a_param_is_added_where_the_block_is_written() -> None:
    """A param is added where the block is written."""
    made = editor().set("encoder.*.feed_forward/f", {"params.bias": False})
    [old, new] = changed(TEXT, made)
    assert old.startswith("-")
    assert new == "+" + old[1:].replace('"=relu_dropout"}', '"=relu_dropout", "bias": false}')


def test_a_param_of_the_parent_becomes_a_patch_and_comments_stay(tmp_path: Path) -> None:
    """A param of the parent becomes a patch and comments stay."""
    made = editor(CHILD, str(tmp_path / "child.json")).set("head", {"params.bias": True})
    assert '"name": "child", // a comment' in made
    assert read_json(made, "x")["patch"][1] == {"select": "head", "set": {"params.bias": True}}


def test_a_param_that_a_patch_of_this_file_writes_is_changed_there(tmp_path: Path) -> None:
    """A param that a patch of this file writes is changed there."""
    made = editor(CHILD, str(tmp_path / "child.json")).set(
        "encoder.*.self_attention/f", {"params.kv_heads": 4}
    )
    assert made == CHILD.replace('"params.kv_heads": 2', '"params.kv_heads": 4')


def test_a_swap_keeps_common_params_and_drops_those_without_use() -> None:
    """A swap keeps common params and drops those without use."""
    made = editor().swap("source_position", "learned_position@1", {})
    made = editor(made).swap("target_position", "learned_position@1", {})
    # Nothing reads the param `position` any more.
    assert '-"position": {"use": "sinusoidal_position@1"}' in changed(TEXT, made)
    assert not read(made, str(BASE)).errors
    assert (
        '"source_position": {"use": "learned_position@1", "in": {"x": "source_embedding.y"}, '
        '"params": {"dropout": "=dropout"}}' in made
    )


def test_an_empty_slot_is_filled() -> None:
    """An empty slot is filled."""
    made = editor().swap("encoder.*.self_attention/f/position", "rotary@1", {})
    assert '+"fill": {"position": {"use": "rotary@1"}}' in changed(TEXT, made)


def test_what_does_not_fit_is_refused_with_the_reason() -> None:
    """What does not fit is refused with the reason."""
    with pytest.raises(InputError, match="does not fit: output 'y' would be"):
        editor().swap("head", "layer_norm@1", {})


def test_a_removed_node_is_bridged() -> None:
    """A removed node is bridged."""
    made = editor().remove("source_position")
    assert '+"in": {"x": "source_embedding.y", "mask": "source_mask"}' in changed(TEXT, made)
    assert "source_position" not in made


def test_sizes_of_the_place_are_proposed_for_a_slot() -> None:
    """A map, a convolution and a recurrence give the width of the layer, by the param's name."""
    one = read(TEXT, str(BASE))
    assert one.graph is not None
    assert one.loaded is not None
    choices = menu(one.graph, one.loaded, "encoder.*.feed_forward/f")
    proposed = {choice["use"]: choice["proposed"] for choice in choices if choice["fits"]}
    assert proposed["linear@1"] == {"d_out": "=d_model"}
    assert proposed["convolution@1"] == {"d_out": "=d_model", "kernel": 3}
    assert proposed["gru@1"] == {"d_hidden": "=d_model"}


def test_a_node_of_a_shipped_spec_is_renamed_in_a_copy() -> None:
    """Shipped variants select it in the shipped spec, which does not change."""
    with pytest.raises(InputError, match="would be wrong"):
        editor().rename("encoder.*.self_attention", "attend")
    text = editor().rename("encoder.*.self_attention", "attend", copied=True)
    layer = read_json(text, "x")["blocks"]["encoder_layer"]["nodes"]
    assert [*layer] == ["attend", "feed_forward"]
    assert layer["feed_forward"]["in"] == {"x": "attend.y"}


def test_a_node_is_inserted_after_another() -> None:
    """All readers of the output read the new node: other nodes, and outputs of the template."""
    nodes = read_json(editor().insert("layer_norm@1", "encoder", "x", {}, after=True), "x")["nodes"]
    assert nodes["layer_norm"]["in"] == {"x": "encoder.x"}
    assert nodes["decoder"]["in"]["memory"] == "layer_norm.y"
    text = editor().insert("layer_norm@1", "encoder.*.feed_forward", "y", {}, after=True)
    layer = read_json(text, "x")["blocks"]["encoder_layer"]
    assert layer["nodes"]["layer_norm"]["in"] == {"x": "feed_forward.y"}
    assert layer["outputs"] == {"x": "layer_norm.y"}


def test_a_block_is_wrapped_by_one_with_an_empty_slot() -> None:
    """A swap to a residual sub-layer puts what is there into its slot, with its params."""
    text = editor().insert("gated_feed_forward@1", "encoder.*.feed_forward", "x", {})
    one = read(text, str(BASE))
    assert one.graph is not None
    assert one.loaded is not None
    [choice] = [
        choice
        for choice in menu(one.graph, one.loaded, "encoder.*.gated_feed_forward")
        if choice["use"] == "sublayer@1"
    ]
    assert choice["around"] == "gated_feed_forward@1"
    after = editor(text).swap("encoder.*.gated_feed_forward", "sublayer@1", {})
    assert read_json(after, "x")["blocks"]["encoder_layer"]["nodes"]["gated_feed_forward"] == {
        "use": "sublayer@1",
        "in": {"x": "self_attention.y"},
        "fill": {"f": {"use": "gated_feed_forward@1", "params": {"d_ff": "=d_ff"}}},
    }
    assert not read(after, str(BASE)).errors


def test_a_node_is_inserted_into_a_wire() -> None:
    """A node is inserted into a wire."""
    made = editor().insert("layer_norm@1", "head", "x", {})
    nodes = read_json(made, "x")["nodes"]
    assert nodes["layer_norm"] == {"use": "layer_norm@1", "in": {"x": "decoder.x"}}
    assert nodes["head"]["in"] == {"x": "layer_norm.y"}


def test_a_child_patches_the_template_of_a_node(tmp_path: Path) -> None:
    """Only a patch of the template itself can add and remove its nodes."""
    source = str(tmp_path / "child.json")
    layer = {"select": "/blocks/encoder_layer"}
    node = "encoder.*.feed_forward"

    made = editor(CHILD, source).insert("layer_norm@1", node, "x", {})

    keys = {
        "nodes.layer_norm": {"use": "layer_norm@1", "in": {"x": "self_attention.y"}},
        "nodes.feed_forward.in.x": "layer_norm.y",
    }
    assert read_json(made, "x")["patch"][1:] == [{**layer, "set": keys}]
    assert not read(made, source).errors
    made = editor(CHILD, source).remove(node)
    assert read_json(made, "x")["patch"][1:] == [
        {**layer, "set": {"outputs.x": "self_attention.y"}},
        {**layer, "remove": ["nodes.feed_forward"]},
    ]
    assert not read(made, source).errors


def test_a_template_of_single_copies_is_not_patched(tmp_path: Path) -> None:
    """The parent does not have it, so that a patch would select nothing."""
    source = str(tmp_path / "child.json")
    child = CHILD.replace("**/f[use=attention@1]", "encoder.0.self_attention/f")

    with pytest.raises(InputError, match="'encoder_layer_0' is not a template of the parent"):
        editor(child, source).remove("encoder.0.feed_forward")


def test_ties_are_joined_and_repeats_counted() -> None:
    """Ties are joined and repeats counted."""
    untied = editor(
        TEXT.replace(
            '"tie": [["source_embedding.weight", "target_embedding.weight", "head.weight"]]',
            '"tie": [["source_embedding.weight", "head.weight"]]',
        )
    )
    made = untied.tie(["head.weight", "target_embedding.weight"])
    assert read_json(made, "x")["tie"] == [
        ["source_embedding.weight", "head.weight", "target_embedding.weight"]
    ]
    assert '+"repeat": 3,' in changed(TEXT, editor().repeat("encoder", 3))
    with pytest.raises(InputError, match="is a block"):
        editor().repeat("head", 3)


def test_the_menu_knows_costs_and_reasons() -> None:
    """The menu knows costs and reasons."""
    one = read(TEXT, str(BASE))
    assert one.graph is not None
    assert one.loaded is not None
    choices = {
        each["use"]: each for each in menu(one.graph, one.loaded, "encoder.*.feed_forward/f")
    }
    gated = choices["gated_feed_forward@1"]
    # A third matrix of d_model x d_ff and its bias, in six layers.
    assert gated["fits"]
    assert gated["parameters"] == 6 * (512 * 2048 + 2048)
    assert choices["depthwise_convolution@1"]["proposed"].keys() == {"kernel"}
    assert not choices["concatenate@1"]["fits"]
    assert "'z'" in choices["concatenate@1"]["reason"]
    assert choices["feed_forward@1"]["parameters"] == 0
    assert choices["feed_forward@1"]["kept"] == 1


def test_a_variant_is_smallest_and_equal() -> None:
    """A variant is smallest and equal."""
    text = TEXT
    for path in (
        "encoder.*.self_attention/f",
        "decoder.*.self_attention/f",
        "decoder.*.cross_attention/f",
    ):
        text = editor(text).set(path, {"params.kv_heads": 2})
    text = text.replace('"layers": 6', '"layers": 4')
    old, new = read(TEXT, str(BASE)), read(text, str(BASE))
    written, value = variant(old, new, "transformer-base", "mine")
    assert value["params"] == {"layers": 4}
    assert value["patch"] == [{"select": "**/f[use=attention@1]", "set": {"params.kv_heads": 2}}]
    assert read_json(written, "x") == value


@pytest.mark.parametrize(
    ("old", "new", "missing"),
    [
        ('"x": "target_position.y"', '"x": "target_positio.y"', ["decoder", "head"]),
        ('"causal": true', '"causl": true', ["decoder", "head"]),
        ('"relu_dropout": 0.0', '"relu_dropout": 0.0,', []),
    ],
)
def test_a_spec_with_a_mistake_is_drawn_without_what_depends_on_it(
    old: str, new: str, missing: list[str]
) -> None:
    """A spec with a mistake is drawn without what depends on it."""
    found = look(read(TEXT.replace(old, new), str(BASE)))
    assert found["partial"]
    assert found["missing"] == missing
    drawn = {box["id"] for box in found["scene"]["states"][""]["boxes"]}
    assert "node/source_position" in drawn
    assert all(f"node/{name}" not in drawn for name in missing)


def test_a_variant_inserts_and_removes_nodes_with_their_wires() -> None:
    """By hand: one patch for both positions, and one for each norm behind a stack."""
    value = json.loads(TEXT)
    nodes = value["nodes"]
    for side in ("source", "target"):
        del nodes[f"{side}_position"]
    nodes["encoder"]["in"]["x"] = "source_embedding.y"
    nodes["decoder"]["in"] |= {"x": "target_embedding.y", "memory": "encoder_norm.y"}
    nodes["encoder_norm"] = {"use": "layer_norm@1", "in": {"x": "encoder.x"}}
    wires = {"x": "decoder.x", "z": "target_embedding.y"}
    nodes["gate"] = {"use": "elementwise@1", "in": wires, "params": {"y": "x + z"}}
    nodes["head"]["in"]["x"] = "gate.y"
    del value["params"]["position"]
    old, new = read(TEXT, str(BASE)), read(json.dumps(value), str(BASE))
    _, made = variant(old, new, "transformer-base", "mine")
    assert sorted(made["patch"], key=str) == sorted(
        [
            {"select": "/", "remove": ["params.position"]},
            {"select": "*_position", "remove": True, "through": "x"},
            {"select": "encoder", "insert_after": {"encoder_norm": {"use": "layer_norm@1"}}},
            {
                "select": "decoder",
                "insert_after": {
                    "gate": {
                        "use": "elementwise@1",
                        "in": {"x": "@", "z": "target_embedding.y"},
                        "params": {"y": "x + z"},
                    }
                },
            },
        ],
        key=str,
    )


def test_one_key_of_several_is_joined_where_it_changes_alike() -> None:
    """Both layers get another order, and one of them another dropout, too."""
    value = json.loads(BASE.read_text())
    for layer in ("encoder_layer", "decoder_layer"):
        value["blocks"][layer]["nodes"]["feed_forward"]["params"]["order"] = "pre"
    value["blocks"]["encoder_layer"]["nodes"]["feed_forward"]["params"]["dropout"] = 0.3
    old, new = read(BASE.read_text(), str(BASE)), read(json.dumps(value), str(BASE))

    _, made = variant(old, new, "transformer-base", "mine")

    assert made["patch"] == [
        {"select": "**.feed_forward", "set": {"params.order": "pre"}},
        {"select": "encoder.*.feed_forward", "set": {"params.dropout": 0.3}},
    ]


def test_changes_that_always_come_together_are_one_patch() -> None:
    """Two keys of the same nodes."""
    value = json.loads(BASE.read_text())
    for layer in ("encoder_layer", "decoder_layer"):
        record = value["blocks"][layer]["nodes"]["feed_forward"]
        record["params"] |= {"order": "pre", "dropout": 0.3}
    old, new = read(BASE.read_text(), str(BASE)), read(json.dumps(value), str(BASE))

    _, made = variant(old, new, "transformer-base", "mine")

    assert made["patch"] == [
        {"select": "**.feed_forward", "set": {"params.dropout": 0.3, "params.order": "pre"}}
    ]
