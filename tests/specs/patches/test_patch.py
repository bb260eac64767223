"""Tests of patches: their effect on a parent, and that their order has no effect."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from weft.specs.findings import Origins, SpecError
from weft.specs.inherit import extended
from weft.specs.json_tree import parts_of
from weft.specs.load import load
from weft.specs.reader import SHIPPED

from .patched import LINEAR, PORTS, ROOT, child, findings, merged, node, only, put

Count = Callable[[Callable[[], object]], int]

BASE = json.loads((SHIPPED / "models" / "transformer-base.json").read_text(encoding="utf-8"))


def test_set_writes_dotted_keys_and_leaves_the_rest() -> None:
    """A missing record is created."""
    value = merged(put("last", True, "params.bias"), put("last", "The end.", "doc"))

    last = {"params": {"d_out": 4, "bias": True}, "in": {"x": "middle.y"}, "doc": "The end."}
    assert value["nodes"]["last"] == {"use": "linear@1", **last}
    assert value["nodes"]["middle"] == ROOT["nodes"]["middle"]
    assert value["blocks"] == ROOT["blocks"]


def test_null_is_a_value_and_remove_takes_keys_away() -> None:
    """`set` never removes a key."""
    value, _ = child(put("last", None, "params.d_out"), {"select": "middle", "remove": ["params"]})

    assert value["nodes"]["last"]["params"] == {"d_out": None}
    assert value["nodes"]["middle"] == {"use": "linear@1", "in": {"x": "many.x"}}


def test_replace_keeps_the_wires_unless_it_has_some() -> None:
    """All other keys are replaced."""
    norm = {"use": "layer_norm@1"}
    value = merged({"select": "middle", "replace": norm})

    assert value["nodes"]["middle"] == {**norm, "in": {"x": "many.x"}}

    other = {**norm, "in": {"x": "right.x"}}
    assert child({"select": "middle", "replace": other})[0]["nodes"]["middle"] == other


def test_remove_rewires_through_a_port() -> None:
    """Readers read the removed node's source, also through a chain of removed nodes."""
    gone = {"remove": True, "through": "x"}
    value = merged({"select": "middle", **gone}, {"select": "last", **gone})

    assert value["outputs"] == {"y": "many.x"}
    assert value["nodes"].keys() == {"left", "right", "many"}


def test_an_output_with_the_name_of_a_removed_node_is_rewired_too() -> None:
    """Outputs and nodes have separate names."""
    base = {**ROOT, "outputs": {"last": "last.y"}}
    patch = {"select": "last", "remove": True, "through": "x"}
    value = {"format": 1, "name": "c", "extends": "root", "patch": [patch]}

    made, _ = extended(base, Origins(("root.json", "")), value, "child.json")

    assert made["outputs"] == {"last": "middle.y"}


def test_remove_without_a_port_leaves_the_wires() -> None:
    """The checker reports the dangling wires."""
    value, _ = child({"select": "middle", "remove": True})

    assert value["nodes"]["last"]["in"] == {"x": "middle.y"}


def test_insert_after_takes_over_every_reader() -> None:
    """Including outputs of the scope."""
    new = {"drop": {"use": "dropout@1", "params": {"dropout": 0.5}}}
    value = merged({"select": "last", "insert_after": new}, put("middle"), put("last"))

    assert value["outputs"] == {"y": "drop.y"}
    assert value["nodes"]["drop"] == {**new["drop"], "in": {"x": "last.y"}}

    value = merged({"select": "many.*.first", "insert_after": new})
    assert value["blocks"]["layer"] == ROOT["blocks"]["layer"], "the towers keep theirs"
    inside = value["blocks"][value["nodes"]["many"]["block"]]["nodes"]
    assert inside["second"]["in"] == {"x": "drop.y"}
    assert inside["drop"]["in"] == {"x": "first.y"}


def test_insert_before_takes_one_wire() -> None:
    """Other readers of the value are unchanged."""
    new = {"norm": {"use": "layer_norm@1"}}
    value = merged({"select": "middle", "insert_before": new})

    assert value["nodes"]["norm"] == {"use": "layer_norm@1", "in": {"x": "many.x"}}
    assert value["nodes"]["middle"]["in"] == {"x": "norm.y"}


def test_an_inserted_node_may_wire_itself_and_name_its_output() -> None:
    """`@` is the intercepted value."""
    new = {"again": {"repeat": 2, "block": "layer", "carry": ["x"], "in": {"x": "@"}}}
    value = merged({"select": "right", "insert_after": new, "port": "x", "output": "x"})

    assert value["nodes"]["again"]["in"] == {"x": "right.x"}
    assert value["nodes"]["many"]["in"] == {"x": "again.x"}


def test_a_row_of_insert_and_remove_is_followed() -> None:
    """The readers of a removed node read the inserted node."""
    new = {"norm": {"use": "layer_norm@1"}}
    value = merged(
        {"select": "many", "insert_after": new, "output": "y"},
        {"select": "middle", "remove": True, "through": "x"},
    )

    assert value["nodes"]["last"]["in"] == {"x": "norm.y"}
    assert value["nodes"]["norm"]["in"] == {"x": "many.x"}


def test_the_spec_itself_and_templates_are_records_too() -> None:
    """`/` and `/blocks/NAME`: a new node, a new port."""
    value = merged(
        {"select": "/", "set": {"outputs.z": "side.y", "nodes.side": node("x"), "tie": []}},
        {"select": "/blocks/layer", "set": {"doc": "Two maps."}},
    )

    assert value["outputs"] == {"y": "last.y", "z": "side.y"}
    assert value["nodes"]["side"] == node("x")
    assert value["tie"] == []
    assert value["blocks"]["layer"]["doc"] == "Two maps."


def test_all_uses_selected_alike_are_patched_in_place() -> None:
    """No template is added, and no reference changes."""
    value = child(put("**.second"))[0]

    assert value["nodes"] == ROOT["nodes"]
    assert value["blocks"]["layer"]["nodes"]["second"]["params"] == {"d_out": 8}
    assert value["blocks"].keys() == {"layer", "tower"}


def test_a_template_used_elsewhere_is_written_again() -> None:
    """The other uses retain the original template."""
    value = merged(put("right.stack.*.first", False, "params.bias"))

    assert value["nodes"]["left"]["use"] == "tower"
    assert value["nodes"]["right"]["use"] == "tower_right"
    assert value["blocks"]["tower_right"]["nodes"]["stack"]["block"] == "layer_stack"
    assert value["blocks"]["layer_stack"]["nodes"]["first"]["params"] == {"d_out": 4, "bias": False}
    assert value["blocks"].keys() == {"layer", "tower", "tower_right", "layer_stack"}
    assert {key: value["blocks"][key] for key in ("layer", "tower")} == ROOT["blocks"]


def test_one_copy_of_a_repeat_is_split_off() -> None:
    """`instead` names the new template; the other copies are unchanged."""
    value = merged(put("many.4.second", False, "params.bias"))

    assert value["nodes"]["many"] == {**ROOT["nodes"]["many"], "instead": {"4": "layer_4"}}
    assert value["blocks"]["layer_4"]["nodes"]["second"]["params"] == {"d_out": 4, "bias": False}
    assert value["blocks"]["layer"] == ROOT["blocks"]["layer"]


def test_copies_that_end_up_equal_are_one_template() -> None:
    """Even if different patches changed them."""
    value = merged(
        put("many.0-1.first", False, "params.bias"),
        put("many.4.first", False, "params.bias"),
        put("many.5.second", False, "params.bias"),
    )

    assert value["nodes"]["many"]["instead"] == {
        "0": "layer_0_1",
        "1": "layer_0_1",
        "4": "layer_0_1",
        "5": "layer_5",
    }
    assert value["blocks"].keys() == {"layer", "tower", "layer_0_1", "layer_5"}


def test_a_change_that_changes_nothing_splits_nothing() -> None:
    """The result equals the original."""
    assert child(put("many.3.first", 4))[0]["nodes"] == ROOT["nodes"]


def test_all_copies_by_number_are_a_repeat_of_the_new_template() -> None:
    """No `instead` is needed."""
    many = merged(put("many.0-5.first", False, "params.bias"))["nodes"]["many"]

    assert many == {**ROOT["nodes"]["many"], "block": "layer_many"}


def test_a_copy_is_split_inside_a_split_use() -> None:
    """Only the second copy in the right tower changes."""
    value = merged(put("right.stack.1.first", False, "params.bias"))

    assert value["nodes"]["right"]["use"] == "tower_right"
    stack = value["blocks"]["tower_right"]["nodes"]["stack"]
    assert stack == {**ROOT["blocks"]["tower"]["nodes"]["stack"], "instead": {"1": "layer_1"}}


def test_new_names_avoid_those_that_are_taken() -> None:
    """By templates of the parent or of the child."""
    own = {"layer_4": {**PORTS, "nodes": {"second": node("x")}}}
    value, _ = child(put("many.4.first", 5), blocks=own)

    assert value["nodes"]["many"]["instead"] == {"4": "layer_4_2"}
    assert value["blocks"]["layer_4"] == own["layer_4"]


def test_a_split_copy_can_be_patched_by_a_grandchild() -> None:
    """By its number, or together with the other copies."""
    once = merged(put("many.4.first", False, "params.bias"))
    origins = Origins(("child.json", ""))
    written = {"format": 1, "extends": "child", "name": "leaf"}
    both = {"select": "many.*.second", "expect": 2, "set": {"params.bias": False}}
    value, _ = extended(once, origins, {**written, "patch": [both]}, "leaf.json")

    new, split = value["nodes"]["many"]["block"], value["nodes"]["many"]["instead"]["4"]
    assert value["blocks"][new]["nodes"]["first"]["params"] == {"d_out": 4}
    assert value["blocks"][split]["nodes"]["first"]["params"] == {"d_out": 4, "bias": False}
    for name in (new, split):
        assert value["blocks"][name]["nodes"]["second"]["params"] == {"d_out": 4, "bias": False}


@pytest.mark.integration
def test_a_child_may_add_templates_and_params_that_it_reads() -> None:
    """A new param without a reader in the child is an error."""
    own = {"wide": {**PORTS, "nodes": {"second": node("x", params={"d_out": "=w"})}}}
    value = merged(put("left", "wide", "use"), blocks=own, params={"w": 4})

    assert value["params"] == {"w": 4}
    assert value["blocks"]["wide"] == own["wide"]
    assert merged(put("last", "=n", "params.d_out"), params={"n": 9})["params"] == {"n": 9}
    assert only(params={"w": 4})[:2] == ("P04", "/params/w")


def test_params_are_removed_through_the_spec_itself() -> None:
    """At the top level of a child they can only be set."""
    value, _ = extended(
        {**ROOT, "params": {"a": 1, "b": 2}},
        Origins(("root.json", "")),
        {
            "format": 1,
            "extends": "root",
            "name": "child",
            "patch": [{"select": "/", "remove": ["params.a"]}],
        },
        "child.json",
    )

    assert value["params"] == {"b": 2}


@pytest.mark.parametrize(
    ("at", "file", "place"),
    [
        ("/nodes/last/params/d_out", "child.json", "/patch/0/set/params.d_out"),
        ("/nodes/last/use", "root.json", "/nodes/last/use"),
        ("/nodes/many/instead/4", "child.json", "/patch/1/select"),
        ("/nodes/many/block", "root.json", "/nodes/many/block"),
        ("/blocks/layer_4/nodes/first/use", "root.json", "/blocks/layer/nodes/first/use"),
        ("/blocks/layer_4/nodes/first/params/bias", "child.json", "/patch/1/set/params.bias"),
        ("/blocks/layer_4/outputs/x", "root.json", "/blocks/layer/outputs/x"),
        ("/nodes/norm", "child.json", "/patch/2/insert_before/norm"),
        ("/nodes/norm/use", "child.json", "/patch/2/insert_before/norm/use"),
        ("/nodes/norm/in/x", "child.json", "/patch/2/insert_before/norm"),
        ("/nodes/middle/in/x", "child.json", "/patch/2/insert_before/norm"),
        ("/nodes/left", "child.json", "/patch/3/set/use"),
        ("/nodes/left/use", "child.json", "/patch/3/set/use"),
        ("/nodes/left/in/x", "root.json", "/nodes/left/in/x"),
        ("/nodes/right", "child.json", "/patch/4/replace"),
        ("/nodes/right/in/x", "root.json", "/nodes/right/in/x"),
        ("/nodes/right/doc", "child.json", "/patch/4/replace/doc"),
        ("/name", "child.json", "/name"),
        ("/blocks/own/nodes", "child.json", "/blocks/own/nodes"),
        ("/tie/0", "child.json", "/patch/5/set/tie/0"),
        ("/axes", "root.json", "/axes"),
        ("", "root.json", ""),
    ],
)
def test_every_value_knows_where_it_was_written(at: str, file: str, place: str) -> None:
    """Copies of a template have the origin of the original."""
    _, origins = child(
        put("last"),
        put("many.4.first", False, "params.bias"),
        {"select": "middle", "insert_before": {"norm": {"use": "layer_norm@1"}}},
        put("left", "own", "use"),
        {"select": "right", "replace": {"use": "own", "doc": "Another."}},
        put("/", [["a", "b"]], "tie"),
        blocks={"own": {**PORTS, "nodes": {"second": node("x")}}},
    )

    assert origins.of(parts_of(at)) == (file, place)


def test_origins_of_a_grandchild_lead_through_the_chain() -> None:
    """A copied value has the origin of the original; an overwritten value, that of the patch."""
    value, origins = child(put("many.*.first", 5), put("**.stack.*.first", 6))
    written = {
        "format": 1,
        "extends": "child",
        "name": "leaf",
        "patch": [put("many.2.second"), put("left.stack.*.first", {"d_out": 9}, "params")],
    }
    _, origins = extended(value, origins, written, "leaf.json")

    def of(at: str) -> tuple[str, str]:
        return origins.of(parts_of(at))

    first = "/nodes/first/params/d_out"
    assert of(f"/blocks/layer_many_2{first}") == ("child.json", "/patch/0/set/params.d_out")
    assert of("/blocks/layer_many_2/nodes/second/params/d_out")[0] == "leaf.json"
    assert of(f"/blocks/layer_stack{first}") == ("leaf.json", "/patch/1/set/params/d_out")


@pytest.mark.parametrize(
    ("patch", "code", "at", "problem"),
    [
        (put("lost"), "X01", "/select", "'lost' selects nothing"),
        ({**put("*"), "expect": 2}, "X02", "/select", "'*' selects 5, expected 2"),
        (put("many.6.first"), "X09", "/select", "'many' has 6 copies, so copy 6 does not exist"),
        ({"select": "last"}, "X05", "", "a patch has exactly one action, and this patch has none"),
        (
            {**put("last"), "remove": True},
            "X05",
            "",
            "a patch has exactly one action, and this patch has 'set' and 'remove'",
        ),
        (put("a b"), "X06", "/select", "'a b' is not a path segment"),
        ({**put("last"), "port": "x"}, "S03", "/port", "unknown key 'port' in a patch with 'set'"),
        (
            {**put("last"), "expcet": 1},
            "S03",
            "/expcet",
            "unknown key 'expcet' in a patch with 'set'",
        ),
        ({"set": {"doc": ""}}, "S04", "", "key 'select' is missing"),
        ({**put("last"), "select": 3}, "S04", "/select", "'select' is not a string"),
        ({**put("last"), "expect": 0}, "S04", "/expect", "'expect' is not a positive integer"),
        ({**put("last"), "expect": True}, "S04", "/expect", None),
        ({"select": "last", "set": {}}, "S04", "/set", None),
        ({"select": "last", "set": {"a..b": 1}}, "S04", "/set", None),
        ({"select": "last", "set": {".".join("a" * 9): 1}}, "S04", "/set", None),
        ({"select": "last", "remove": False}, "S04", "/remove", None),
        ({"select": "last", "remove": []}, "S04", "/remove", None),
        ({"select": "last", "insert_after": {"a": LINEAR, "b": LINEAR}}, "S04", None, None),
        ({"select": "last", "replace": []}, "S04", "/replace", None),
        ({"select": "last", "remove": True, "through": ""}, "S04", "/through", None),
        (
            {"select": "last", "set": {"params": {}, "params.d_out": 1}},
            "X03",
            "/set",
            "'params.d_out' is inside 'params', also written here",
        ),
        (
            put("last", 1, "use.a"),
            "X07",
            None,
            "'use.a' goes through a value that is not an object",
        ),
        (put("/", 1, "params.d"), "X07", "/set", "a patch of '/' cannot write 'params'"),
        (put("/", 1, "blocks.a"), "X07", "/set", "a patch of '/' cannot write 'blocks'"),
        (
            {"select": "last", "remove": ["parms"]},
            "X07",
            "/remove/0",
            "there is no 'parms' to remove",
        ),
        ({"select": "/", "remove": True}, "X07", "/remove", "the spec itself cannot be removed"),
        ({"select": "/", "replace": {}}, "X07", "/replace", "the spec itself cannot be replaced"),
        (
            {"select": "last", "remove": True, "through": "y"},
            "X07",
            "/through",
            "node 'last' has no wire 'y'",
        ),
        (
            {"select": "/blocks/layer", "insert_after": {"a": LINEAR}},
            "X07",
            "/insert_after",
            "only nodes have wires",
        ),
        (
            {"select": "last", "insert_before": {"a": LINEAR}, "port": "y"},
            "X07",
            "/port",
            "node 'last' has no wire 'y'",
        ),
        (
            {"select": "last", "insert_after": {"a": LINEAR}, "port": "z"},
            "X07",
            "/port",
            "nothing reads 'last.z'",
        ),
        (
            {"select": "last", "insert_after": {"middle": LINEAR}},
            "X04",
            "/insert_after/middle",
            "node 'middle' exists already in the spec",
        ),
        (
            {"select": "many.*.*", "insert_after": {"a": LINEAR}},
            "X04",
            "/insert_after/a",
            "node 'a' exists already in template 'layer'",
        ),
    ],
)
def test_a_patch_that_cannot_be_brought_in_says_why(
    patch: dict[str, Any], code: str, at: str | None, problem: str | None
) -> None:
    """One finding, in the child, at the key."""
    found = only(patch)

    assert found[0] == code
    assert at is None or found[1] == f"/patch/0{at}"
    assert problem is None or found[2] == problem


def test_a_selection_that_misses_lists_the_nearest_paths() -> None:
    """If the path matches, it lists the values that the predicates compared."""
    [finding] = findings(put("many.*.frist"))
    assert finding.help.startswith("nearest: many.*.first")

    [finding] = findings(put("many.*.first[params.d_out=8][use=linear@1]"))
    assert finding.evidence == ("'many.*.first' has params.d_out = 4",)


def test_an_unexpected_count_lists_the_selected_paths() -> None:
    """So that a reader sees which paths are unexpected."""
    [finding] = findings({**put("**.first"), "expect": 2})

    assert finding.evidence == ("selected left.stack.*.first",)


def test_all_mistakes_of_selections_come_at_once() -> None:
    """One finding for each patch."""
    found = findings(put("a"), put("last"), {**put("*"), "expect": 9}, put("many.7.first"))

    assert [(f.code, f.at) for f in found] == [
        ("X01", "/patch/0/select"),
        ("X02", "/patch/2/select"),
        ("X09", "/patch/3/select"),
    ]


NEW = {"new": {"use": "layer_norm@1"}}
OTHER = {"other": {"use": "layer_norm@1"}}


def test_too_many_patches_and_too_much_written_are_refused(
    count_calls: Count,
) -> None:
    """256 patches, and 4 times the size limit of a file."""
    assert only(*[put("last", 1, f"params.p{i}") for i in range(257)])[0] == "X08"

    nodes = {f"n{i}": node("x") for i in range(2000)}
    written = {"format": 1, "extends": "root", "name": "child", "patch": [put("*", "x" * 10**5)]}

    def take_in() -> None:
        with pytest.raises(SpecError) as error:
            extended({**ROOT, "nodes": nodes}, Origins(("root.json", "")), written, "child.json")
        assert [finding.code for finding in error.value.findings] == ["X08"]

    assert count_calls(take_in) < 500_000


def test_exceptions_equal_to_the_new_template_are_removed() -> None:
    """Two of three copies used another template, and the third gets a third one."""
    many = {**ROOT["nodes"]["many"], "repeat": 3, "instead": {"1": "wide", "2": "wide"}}
    base = {
        **ROOT,
        "blocks": {**ROOT["blocks"], "wide": ROOT["blocks"]["layer"]},
        "nodes": {**ROOT["nodes"], "many": many},
    }
    patch = {"select": "many.0.first", "set": {"params.bias": False}}
    value = {"format": 1, "name": "c", "extends": "root", "patch": [patch]}

    made, _ = extended(base, Origins(("root.json", "")), value, "child.json")

    node = made["nodes"]["many"]
    assert (node["block"], node["instead"].keys()) == ("wide", {"0"})
    first = made["blocks"][node["instead"]["0"]]["nodes"]["first"]
    assert first["params"] == {"d_out": 4, "bias": False}
    assert made["blocks"]["layer"] == ROOT["blocks"]["layer"]


@pytest.mark.parametrize("use", ["layer", "=inner"])
def test_a_use_that_is_not_selected_stays_in_slots_and_choices_too(use: str) -> None:
    """Selections do not enter these, so they use the original template."""
    slot = {"use": "sublayer@1", "fill": {"f": {"use": use}}}
    nodes = {
        "many": ROOT["nodes"]["many"] | {"in": {"x": "x"}},
        "outer": {"use": "sublayer@1", "fill": {"f": slot}, "in": {"x": "many.x"}},
    }
    base = {
        **ROOT,
        "params": {"inner": {"use": "layer"}},
        "outputs": {"y": "outer.y"},
        "blocks": {"layer": ROOT["blocks"]["layer"]},
        "nodes": nodes,
    }
    patch = {"select": "many.*.first", "set": {"params.bias": False}}
    value = {"format": 1, "name": "c", "extends": "root", "patch": [patch]}

    made, _ = extended(base, Origins(("root.json", "")), value, "child.json")

    assert made["blocks"]["layer"] == ROOT["blocks"]["layer"]
    changed = made["blocks"][made["nodes"]["many"]["block"]]
    assert changed["nodes"]["first"]["params"] == {"d_out": 4, "bias": False}
    assert made["nodes"]["outer"] == nodes["outer"]


def test_a_repeat_that_is_too_large_is_not_written_out(tmp_path: Path) -> None:
    """Its copies are as unknown as those of a param; the checker refuses it later."""
    layer = {"inputs": {"x": "f[B T 4]"}, "outputs": {"x": "x"}, "nodes": {}}
    stack = {"repeat": 10**12, "block": "one", "instead": {"::2": "two"}, "carry": ["x"]}
    parent = {
        "format": 1,
        "name": "parent",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 4]"},
        "outputs": {"y": "stack.x"},
        "blocks": {"one": layer, "two": layer},
        "nodes": {"stack": {**stack, "in": {"x": "x"}}},
    }
    child = {
        "format": 1,
        "name": "child",
        "extends": "parent",
        "patch": [{"select": "stack", "set": {"repeat": 3}}],
    }
    (tmp_path / "parent.json").write_text(json.dumps(parent))
    (tmp_path / "child.json").write_text(json.dumps(child))

    assert load(tmp_path / "child.json").form.nodes["stack"].repeat == 3  # type: ignore[union-attr]
