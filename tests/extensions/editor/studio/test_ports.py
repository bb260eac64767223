"""Wires that are drawn: which ports fit a value, and the text after one is chosen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from weft.extensions.editor.studio import ports
from weft.extensions.editor.studio.checked_text import CheckedText, look, read
from weft.extensions.editor.studio.edits import Editor
from weft.graphs.ir.traverse import visits
from weft.specs.findings import InputError
from weft.specs.reader import SHIPPED, read_json

BASE = SHIPPED / "models" / "transformer-base.json"
SMALL: dict[str, Any] = {
    "format": 1,
    "name": "small",
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"x": "f[B T 8]", "narrow": "f[B T 4]", "m": "mask[B T]"},
    "outputs": {"y": "last.y", "z": "wide.y"},
    "nodes": {
        "masked": {
            "use": "attention@1",
            "params": {"heads": 2},
            "in": {"x": "narrow", "mask": "m"},
        },
        "wide": {"use": "linear@1", "params": {"d_out": 8}, "in": {"x": "masked.y"}},
        "attend": {"use": "attention@1", "params": {"heads": 2}, "in": {"x": "x"}},
        "last": {"use": "layer_norm@1", "in": {"x": "attend.y"}},
    },
}


def base() -> CheckedText:
    """Return the shipped Transformer, checked."""
    return read(BASE.read_text(), str(BASE))


def small(tmp_path: Path) -> CheckedText:
    """Return a small spec, checked."""
    one = read(json.dumps(SMALL, indent=2), str(tmp_path / "small.json"))
    assert one.errors == []
    return one


def fitting(one: CheckedText, path: str) -> dict[str, list[tuple[str, str, str | None]]]:
    """Return the ports of each value: path, name, and what it reads now."""
    assert one.graph is not None
    assert one.loaded is not None
    inside = path.startswith("in ")
    found = ports.fitting_ports(
        one.graph, one.loaded, path.removeprefix("in ").strip(), inside=inside
    )
    return {
        each["value"]: [(port["path"], port["port"], port["now"]) for port in each["ports"]]
        for each in found
    }


def readable(one: CheckedText, path: str) -> dict[str, tuple[bool, str | None, list[str]]]:
    """Return the ports of a node: whether each is optional, what it reads, and could read."""
    assert one.graph is not None
    assert one.loaded is not None
    listed = ports.fitting_values(one.graph, one.loaded, path)
    return {each["port"]: (each["optional"], each["now"], each["values"]) for each in listed}


def test_ports_without_a_wire_are_listed_with_what_fits_them() -> None:
    """Also those of the block in a slot; the decoder has a mask of the source alone."""
    assert readable(base(), "decoder.*.cross_attention") == {
        "x": (False, "self_attention.y", ["x", "self_attention.y"]),
        "memory": (True, "memory", ["memory"]),
        "mask": (True, "mask", ["mask"]),
        "bias": (True, None, []),
    }
    assert readable(base(), "encoder.*.self_attention")["memory"] == (True, None, ["x"])


def test_an_optional_port_of_a_template_is_listed(tmp_path: Path) -> None:
    """It takes values of its type, and none that is computed from the node."""
    value = json.loads(json.dumps(SMALL))
    value["blocks"] = {
        "layer": {
            "inputs": {"x": "f[B T 8]", "more": "f[B T 8]?"},
            "outputs": {"y": "a.y"},
            "nodes": {
                "a": {
                    "use": "attention@1",
                    "params": {"heads": 2},
                    "in": {"x": "x", "memory": "more"},
                }
            },
        }
    }
    value["nodes"]["last"] = {"use": "layer", "in": {"x": "attend.y"}}
    value["outputs"]["w"] = "end.y"
    value["nodes"]["end"] = {"use": "layer_norm@1", "in": {"x": "last.y"}}
    one = read(json.dumps(value), str(tmp_path / "small.json"))

    listed = readable(one, "last")

    assert listed["more"] == (True, None, ["x", "attend.y", "wide.y"])
    wired = Editor(one).wire("last", "more", "wide.y")
    assert not read(wired, one.source).errors
    assert read_json(Editor(read(wired, one.source)).wire("last", "more", None), "x") == value


@pytest.mark.integration
def test_every_block_of_a_palette_can_be_inserted(tmp_path: Path) -> None:
    """In a wire of 8 numbers, each with the params that it is offered with."""
    one = small(tmp_path)
    assert one.graph is not None
    assert one.loaded is not None
    pieces = ports.fitting_blocks(one.graph, one.loaded, "last", "x")

    for piece in pieces:
        text = Editor(one).insert(piece["use"], "last", "x", piece["proposed"])
        after = read(text, one.source)
        assert after.errors == [], piece["use"]
        assert after.graph is not None
        assert after.graph.parameters() - one.graph.parameters() == piece["parameters"]
    proposed = {piece["use"]: piece["proposed"] for piece in pieces}
    assert proposed["linear@1"] == {"d_out": 8}
    assert proposed["gru@1"] == {"d_hidden": 8}
    assert proposed["convolution@1"] == {"d_out": 8, "kernel": 3}


def test_an_inserted_block_reads_the_mask_of_its_layer() -> None:
    """A convolution over time would otherwise read padding, which is a finding."""
    one = base()
    text = Editor(one).insert("depthwise_convolution@1", "encoder.*.self_attention", "x", {})
    nodes = read_json(text, "x")["blocks"]["encoder_layer"]["nodes"]
    assert nodes["depthwise_convolution"]["in"] == {"x": "x", "mask": "mask"}
    assert not read(text, one.source).errors


def test_a_block_that_does_not_fit_is_not_inserted() -> None:
    """With these params, the wire would have another width."""
    with pytest.raises(InputError, match=r"does not give f\[B S 512\]"):
        Editor(base()).insert("linear@1", "encoder.*.feed_forward", "x", {"d_out": 7})


def test_ports_of_the_same_scope_and_type_fit() -> None:
    """The two consumers of f[B T 512] behind the position, and no node of a template."""
    assert fitting(base(), "target_position") == {
        "target_position.y": [
            ("decoder", "x", "target_position.y"),
            ("head", "x", "decoder.x"),
        ]
    }
    assert fitting(base(), "decoder.*.self_attention") == {
        "self_attention.y": [
            ("decoder.*.cross_attention", "x", "self_attention.y"),
            ("decoder.*.feed_forward", "x", "cross_attention.y"),
        ]
    }


def test_an_input_of_the_graph_is_a_value() -> None:
    """Masks fit where masks are read."""
    assert fitting(base(), "in ")["source_mask"] == [
        ("encoder", "mask", "source_mask"),
        ("decoder", "mask", "source_mask"),
    ]


def test_an_input_of_a_template_is_a_value_inside_of_it() -> None:
    """A wire can begin at the edge of the frame around a layer."""
    assert fitting(base(), "in decoder.*")["memory"] == [
        ("decoder.*.cross_attention", "memory", "memory")
    ]


def test_no_port_leads_back_to_the_value() -> None:
    """A wire from a node to what it is computed from would be a cycle."""
    for path in ("encoder.*.feed_forward", "head"):
        assert fitting(base(), path) in ({"feed_forward.y": []}, {"head.y": []})


def test_an_optional_port_without_a_wire_fits(tmp_path: Path) -> None:
    """The mask of an attention is open, and takes a mask and nothing else."""
    one = small(tmp_path)
    assert fitting(one, "in ")["m"] == [("attend", "mask", None), ("masked", "mask", "m")]
    made = Editor(one).wire("attend", "mask", "m")
    assert read_json(made, "x")["nodes"]["attend"]["in"] == {"x": "x", "mask": "m"}
    assert not read(made, one.source).errors


def test_another_type_fits_if_the_outputs_stay_the_same(tmp_path: Path) -> None:
    """A linear map takes 8 numbers instead of 4, and an activation would give another type."""
    found = fitting(small(tmp_path), "in ")["x"]
    assert ("wide", "x", "masked.y") in found
    assert ("last", "x", "attend.y") in found
    assert "last" not in {path for path, *_ in fitting(small(tmp_path), "in ")["narrow"]}


def test_the_number_of_checks_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wires of the same type need no check, and others are left out beyond the limit."""
    monkeypatch.setattr(ports, "MOST_CHECKS", 0)
    found = fitting(small(tmp_path), "in ")["x"]
    assert ("last", "x", "attend.y") in found
    assert "wide" not in {path for path, *_ in found}


def test_the_checker_accepts_every_wire_that_is_offered() -> None:
    """At most a node that nothing reads any more is reported."""
    one = base()
    assert one.graph is not None
    paths = [visit.path for visit in visits(one.graph.root) if visit.kind == "name"]
    count = 0
    for path in [*paths, "in ", "in encoder.*", "in decoder.*"]:
        for value, some in fitting(one, path).items():
            for at, port, now in some:
                made = Editor(one).wire(at, port, value)
                codes = {finding.code for finding in read(made, one.source).errors}
                assert codes <= {"W02", "W03"}, (value, at, port)
                assert (made == one.text) == (now == value)
                count += 1
    assert count >= len(paths)


def test_wires_are_moved_although_a_node_is_unread_in_between() -> None:
    """A node that nothing reads stays in the drawing, and its wire can be drawn again."""
    one = base()
    moved = read(Editor(one).wire("head", "x", "target_embedding.y"), one.source)
    assert [finding.code for finding in moved.errors] == ["W03"]
    shown = look(moved)
    assert shown["editable"]
    assert shown["missing"] == []
    boxes = {box["id"] for box in shown["scene"]["states"][""]["boxes"]}
    assert {"node/decoder.*.self_attention", "node/head"} <= boxes
    assert moved.editable is not None
    assert moved.loaded is not None
    [found] = ports.fitting_ports(moved.editable, moved.loaded, "decoder")
    assert found["ports"] == [{"path": "head", "port": "x", "now": "target_embedding.y"}]
    assert Editor(moved).wire("head", "x", "decoder.x") == one.text


@pytest.mark.parametrize(
    ("old", "new", "drawn"),
    [
        ('"x": "target_position.y"', '"x": "target_positio.y"', "encoder.*.feed_forward"),
        ('"heads": 8', '"heads": 7', "decoder.*.cross_attention"),
        ('"x": "cross_attention.y"', '"x": "self_attention.y"', "decoder.*.cross_attention"),
        (', "memory": "memory", "mask": "mask"', ', "memory": "memory"', "decoder.*.feed_forward"),
        (
            '"x": "source_position.y", "mask"',
            '"x": "source_embedding.y", "mask"',
            "source_position",
        ),
    ],
)
def test_clicks_edit_what_does_not_depend_on_a_mistake(old: str, new: str, drawn: str) -> None:
    """A misspelled value, a condition, and a node and an input of a template that nothing reads."""
    one = read(BASE.read_text().replace(old, new), str(BASE))
    assert one.errors
    shown = look(one)
    assert shown["editable"]
    assert f"node/{drawn}" in {box["id"] for box in shown["scene"]["states"][""]["boxes"]}
    made = Editor(one).set(drawn, {"params.dropout": 0.25})
    assert made.count('"dropout": 0.25') == 1
    # The mistake stays where it is, and nothing else is reported.
    assert {each.code for each in read(made, one.source).errors} == {e.code for e in one.errors}


@pytest.mark.parametrize("new", ['"heads": 8,,', '"heads": 8, "heads": 8'])
def test_a_text_that_is_no_json_is_edited_as_text_only(new: str) -> None:
    """Its keys have no certain place."""
    one = read(BASE.read_text().replace('"heads": 8,', new), str(BASE))
    assert one.editable is None
    assert not look(one).get("editable")
    with pytest.raises(InputError, match="cannot be edited by clicks"):
        Editor(one)


def test_an_unread_node_of_a_template_is_wired_again() -> None:
    """It stays in the drawing, in a repeat and in a slot, and its wire can be drawn back."""
    one = base()
    moved = read(Editor(one).wire("decoder.*.feed_forward", "x", "self_attention.y"), one.source)
    assert [each.at for each in moved.errors] == ["/blocks/decoder_layer/nodes/cross_attention"]
    assert moved.editable is not None
    assert moved.loaded is not None
    [found] = ports.fitting_ports(moved.editable, moved.loaded, "decoder.*.cross_attention")
    assert {"path": "decoder.*.feed_forward", "port": "x", "now": "self_attention.y"} in (
        found["ports"]
    )
    back = Editor(moved).wire("decoder.*.feed_forward", "x", "cross_attention.y")
    assert back == one.text


def test_an_unread_node_of_a_template_in_a_slot_is_left_out() -> None:
    """A slot takes one output, so it is not drawn; the rest is edited."""
    value = json.loads(BASE.read_text())
    body = {
        "inputs": {"x": "f[B S d_model]"},
        "outputs": {"y": "a.y"},
        "nodes": {name: {"use": "layer_norm@1", "in": {"x": "x"}} for name in ("a", "b")},
    }
    value["blocks"]["twice"] = body
    layer = value["blocks"]["encoder_layer"]["nodes"]
    layer["feed_forward"]["fill"]["f"] = {"use": "twice"}
    one = read(json.dumps(value), str(BASE))
    assert [each.at for each in one.errors] == ["/blocks/twice/nodes/b"]
    assert look(one)["missing"] == []
    assert '"repeat": 2' in Editor(one).repeat("encoder", 2)


@pytest.mark.parametrize("path", ["nothing", "in nothing", "head/f", "encoder.*"])
def test_a_place_that_is_no_value_is_refused(path: str) -> None:
    """With its name."""
    with pytest.raises(InputError, match=r"is not a (node|template)"):
        fitting(base(), path)
