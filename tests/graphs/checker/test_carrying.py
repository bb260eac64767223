"""Values from outside a template: findings say how it can read them, and fixes carry them in."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import weft
from weft.specs.text_edits import edited

NORM = {"use": "layer_norm@1", "in": {"x": "x"}}
ATTENTION = {"use": "attention@1", "in": {"x": "x", "mask": "padding"}, "params": {"heads": 2}}
ADDED = {"use": "elementwise@1", "in": {"x": "x", "z": "embedding.y"}, "params": {"y": "x + z"}}


def template(node: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a template of one node, whose input is `x`."""
    port = "y" if "@" in str(node.get("use", "")) else "x"
    record = {
        "inputs": {"x": "f[B S d]"},
        "outputs": {"x": f"node.{port}"},
        "nodes": {"node": node},
    }
    return copy.deepcopy({**record, **more})


def spec_of(blocks: dict[str, Any], **nodes: Any) -> dict[str, Any]:
    """Return a spec with these templates; its last node is the output."""
    *_, last = nodes
    return {
        "format": 1,
        "name": "outside",
        "params": {"d": 16, "v": 50},
        "axes": {"B": "batch", "S": "time"},
        "inputs": {"words": "ids:v[B S]", "padding": "mask[B S]"},
        "outputs": {"y": f"{last}.x"},
        "blocks": blocks,
        "nodes": {
            "embedding": {
                "use": "embedding@1",
                "in": {"ids": "words"},
                "params": {"d_model": "=d"},
            },
            "position": {"use": "sinusoidal_position@1", "in": {"x": "embedding.y"}},
            **nodes,
        },
    }


STACK = {"repeat": 3, "block": "layer", "carry": ["x"], "in": {"x": "position.y"}}
USE = {"use": "layer", "in": {"x": "stack.x"}}
SLOT = {"use": "sublayer@1", "in": {"x": "x"}, "fill": {"f": {"use": "inner"}}}
INNER = template(ATTENTION) | {"outputs": {"y": "node.y"}}
NESTED = {"repeat": 2, "block": "inner", "carry": ["x"], "in": {"x": "x"}}

CASES = {
    "in a repeat": (
        spec_of({"layer": template(ATTENTION)}, stack=STACK),
        {"/blocks/layer/inputs/padding": "mask[B S]", "/nodes/stack/in/padding": "padding"},
    ),
    "in two templates, one in the other": (
        spec_of({"layer": template(NESTED), "inner": template(ATTENTION)}, stack=STACK),
        {
            "/blocks/layer/inputs/padding": "mask[B S]",
            "/nodes/stack/in/padding": "padding",
            "/blocks/inner/inputs/padding": "mask[B S]",
            "/blocks/layer/nodes/node/in/padding": "padding",
        },
    ),
    "in a slot": (
        spec_of({"layer": template(SLOT), "inner": INNER}, stack=STACK),
        {
            "/blocks/layer/inputs/padding": "mask[B S]",
            "/nodes/stack/in/padding": "padding",
            "/blocks/inner/inputs/padding": "mask[B S]",
            "/blocks/layer/nodes/node/in/padding": "padding",
        },
    ),
    "the output of a node": (
        spec_of({"layer": template(ADDED)}, stack=STACK),
        {
            "/blocks/layer/inputs/embedding": "f[B S d]",
            "/nodes/stack/in/embedding": "embedding.y",
            "/blocks/layer/nodes/node/in/z": "embedding",
        },
    ),
    "a param of the template has the name of one of the spec": (
        spec_of({"layer": template(ADDED, params={"d": 16})}, stack=STACK),
        {
            "/blocks/layer/inputs/embedding": "f[B S 16]",
            "/nodes/stack/in/embedding": "embedding.y",
            "/blocks/layer/nodes/node/in/z": "embedding",
        },
    ),
    "one use wires it under another name": (
        spec_of(
            {
                "layer": template(
                    ATTENTION, inputs={"x": "f[B S d]", "mask": "mask[B S]?"}
                )
            },
            stack=STACK,
            last={**USE, "in": {"x": "stack.x", "mask": "padding"}},
        ),
        {"/nodes/stack/in/mask": "padding", "/blocks/layer/nodes/node/in/mask": "mask"},
    ),
    "single copies have another template": (
        spec_of(
            {"layer": template(ATTENTION), "norm": template(NORM)},
            stack={**STACK, "instead": {"1": "norm"}},
        ),
        {
            "/blocks/layer/inputs/padding": "mask[B S]",
            "/blocks/norm/inputs/padding": "mask[B S]",
            "/nodes/stack/in/padding": "padding",
        },
    ),
    "only single copies read it": (
        spec_of(
            {"layer": template(NORM), "attention": template(ATTENTION)},
            stack={**STACK, "instead": {"1": "attention"}},
        ),
        {
            "/blocks/attention/inputs/padding": "mask[B S]",
            "/blocks/layer/inputs/padding": "mask[B S]",
            "/nodes/stack/in/padding": "padding",
        },
    ),
    "a node shares the module of another": (
        spec_of(
            {"layer": template(ATTENTION)},
            stack=STACK,
            once=USE,
            again={"share": "once", "in": {"x": "once.x"}},
        ),
        {
            "/blocks/layer/inputs/padding": "mask[B S]",
            "/nodes/stack/in/padding": "padding",
            "/nodes/once/in/padding": "padding",
            "/nodes/again/in/padding": "padding",
        },
    ),
    "an output of the template": (
        spec_of(
            {"layer": template(ADDED, outputs={"x": "node.y", "each": "words"}) | {
                "inputs": {"x": "f[B S d]", "z": "f[B S d]"},
                "nodes": {"node": {**ADDED, "in": {"x": "x", "z": "z"}}},
            }},
            stack={**STACK, "collect": ["each"], "in": {"x": "position.y", "z": "embedding.y"}},
        ),
        {"/blocks/layer/inputs/words": "ids:v[B S]", "/nodes/stack/in/words": "words"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_value_from_outside_is_carried_into_a_template(tmp_path: Path, case: str) -> None:
    """Through every template around it, to all uses; it is one mistake, and the fix removes it."""
    spec, edits = CASES[case]
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec))

    first, *others = weft.check(path)

    assert first.code == "N02"
    assert first.fix is not None
    assert first.fix.certain
    assert {edit.path: edit.value for edit in first.fix.edits} == edits
    path.write_text(edited(json.dumps(spec), first.fix.edits))
    unread = ["/inputs/padding"] if "padding" not in json.dumps(edits) else []
    assert [finding.at for finding in others] == unread
    assert [finding.at for finding in weft.check(path)] == unread


@pytest.mark.parametrize(
    ("case", "help_"),
    [
        (
            "in a repeat",
            "template 'layer' reads only its own inputs, x, and its nodes: give it an input",
        ),
        (
            "one use wires it under another name",
            "inside template 'layer' it is called 'mask'; wire 'padding' to it wherever",
        ),
    ],
)
def test_the_help_names_the_values_of_the_template(tmp_path: Path, case: str, help_: str) -> None:
    """What it can read, or under which name it has the value already."""
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(CASES[case][0]))

    assert weft.check(path)[0].help.startswith(help_)


def test_a_value_that_one_use_lacks_is_not_carried(tmp_path: Path) -> None:
    """The names of the other template mean something else."""
    spec = spec_of(
        {"layer": template({**ADDED, "in": {"x": "x", "z": "elsewhere.y"}})},
        stack=STACK,
    )
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec))

    finding = weft.check(path)[0]

    assert (finding.code, finding.fix) == ("N02", None)


def test_a_mask_is_carried_through_nested_templates(tmp_path: Path) -> None:
    """The warning about padding has a fix there, too, which leaves no warning."""
    attention = {"use": "attention@1", "in": {"x": "x"}, "params": {"heads": 2}}
    spec = spec_of({"layer": template(NESTED), "inner": template(attention)}, stack=STACK)
    spec["nodes"]["end"] = {**ATTENTION, "in": {"x": "stack.x", "mask": "padding"}}
    spec["outputs"]["y"] = "end.y"
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec))

    [finding] = weft.check(path)
    assert finding.fix is not None
    path.write_text(edited(json.dumps(spec), finding.fix.edits))

    assert (finding.code, list(weft.check(path))) == ("D02", [])


def test_beside_a_node_without_a_form_nothing_is_carried_into_the_spec(tmp_path: Path) -> None:
    """Such a node uses the name "", which is that of the spec around the templates."""
    wrong = template({"use": "layer_norm@1", "in": {"x": "key"}})
    inputs = {"x": "f[B S d]", "key": "f[B S d]"}
    broken = template(NORM, inputs=inputs, nodes={"node": NORM, "informed": "x + z"})
    spec = spec_of({"layer": wrong, "other": broken}, stack=STACK)
    (tmp_path / "spec.json").write_text(json.dumps(spec))

    findings = weft.check(tmp_path / "spec.json")

    assert {finding.at for finding in findings} >= {
        "/blocks/layer/nodes/node/in/x",
        "/blocks/other/nodes/informed",
    }


@pytest.mark.integration
def test_the_command_fixes_two_readers_in_one_template(tmp_path: Path) -> None:
    """The second one reads the input that the first one needed."""
    nodes = {
        "node": ATTENTION,
        "more": {**ATTENTION, "in": {"x": "node.y", "mask": "padding"}},
    }
    record = template(ATTENTION, nodes=nodes, outputs={"x": "more.y"})
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec_of({"layer": record}, stack=STACK), indent=2))

    command = [sys.executable, "-m", "weft", "check", "--fix", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
    fixed = json.loads(path.read_text())
    assert fixed["blocks"]["layer"]["inputs"] == {"x": "f[B S d]", "padding": "mask[B S]"}
    assert fixed["nodes"]["stack"]["in"] == {"x": "position.y", "padding": "padding"}
