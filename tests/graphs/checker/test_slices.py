"""Slices in `instead`: copies selected by a rule."""

from __future__ import annotations

from typing import Any

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse
from weft.graphs.ir.canonical import canonical
from weft.graphs.ir.graph import RepeatNode
from weft.specs.findings import SpecError
from weft.specs.load import load_child, loaded


def spec_of(instead: dict[str, str], repeat: Any = "=layers") -> dict[str, Any]:
    """Return a spec with a stack of 7 copies."""

    def layer(by: int) -> dict[str, Any]:
        formula = {"y": f"{by} * x"}
        nodes = {"times": {"use": "elementwise@1", "in": {"x": "x"}, "params": formula}}
        return {"inputs": {"x": "f[B T 4]"}, "outputs": {"x": "times.y"}, "nodes": nodes}

    stack = {"repeat": repeat, "block": "plain", "carry": ["x"], "in": {"x": "x"}}
    return {
        "format": 1,
        "name": "sliced",
        "params": {"layers": 7} if repeat == "=layers" else {},
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 4]"},
        "outputs": {"y": "stack.x"},
        "blocks": {"plain": layer(1), "other": layer(2), "last": layer(3)},
        "nodes": {"stack": {**stack, "instead": instead}},
    }


def templates(spec: dict[str, Any]) -> dict[int, str]:
    """Return the templates of the copies that do not use `plain`."""
    graph, findings = analyse(loaded(spec).form, registry())
    assert [one.code for one in findings if one.code != "W08"] == []
    assert graph is not None
    node = graph.root.nodes[0]
    assert isinstance(node, RepeatNode)
    return {index: body.name for index, body in node.instead.items()}


@pytest.mark.parametrize(
    ("instead", "expected"),
    [
        ({"2::3": "other", "-1": "last"}, {2: "other", 5: "other", 6: "last"}),
        ({"1::2": "other", "0": "last"}, {0: "last", 1: "other", 3: "other", 5: "other"}),
        ({"-2:": "other", ":1": "last"}, {0: "last", 5: "other", 6: "other"}),
        ({"1:4:2": "other", "-3": "last"}, {1: "other", 3: "other", 4: "last"}),
    ],
)
def test_a_slice_selects_the_copies_that_python_would(
    instead: dict[str, str], expected: dict[int, str]
) -> None:
    """Also where the number of copies is an expression."""
    assert templates(spec_of(instead)) == expected


def test_the_full_form_has_the_numbers() -> None:
    """A slice and the numbers that it stands for are the same model."""
    graphs = [
        analyse(loaded(spec_of(instead)).form, registry())[0]
        for instead in (
            {"2::3": "other", "-1": "last"},
            {"2": "other", "5": "other", "6": "last"},
        )
    ]

    forms = [canonical(graph) for graph in graphs if graph is not None]

    assert forms[0] == forms[1]
    assert forms[0]["nodes"]["stack"]["instead"].keys() == {"2", "5", "6"}


@pytest.mark.parametrize(
    ("instead", "problem"),
    [
        ({"9::2": "other", "0": "last"}, "the slice '9::2' selects none of the 7 copies"),
        ({"-8": "other", "0": "last"}, "there is no copy -8: the copies are 0 to 6"),
        ({"2::3": "other", "5": "last"}, "both '2::3' and '5' select copy 5"),
        ({"-1": "other", "6": "last"}, "both '-1' and '6' select copy 6"),
    ],
)
def test_a_slice_without_a_clear_meaning_is_reported(instead: dict[str, str], problem: str) -> None:
    """Each copy has one template, and each key selects a copy."""
    _, findings = analyse(loaded(spec_of(instead)).form, registry())

    assert [one.problem for one in findings if one.code == "P07"] == [problem]


@pytest.mark.parametrize("key", ["2:1:0", "::-1", "a:", "1:2:3:4", "-0", "--1", ""])
def test_a_key_that_is_no_slice_is_refused(key: str) -> None:
    """The finding says what a key may be."""
    with pytest.raises(SpecError, match="or a slice, such as '2::3'"):
        assert loaded(spec_of({key: "other"})).form


def patched(spec: dict[str, Any], select: str) -> dict[str, Any]:
    """Return the stack of a spec in which a patch multiplies by 5."""
    patch = {"select": select, "set": {"params.y": "5 * x"}}
    child = {"format": 1, "extends": "sliced", "name": "child", "patch": [patch]}
    made = load_child(loaded(spec), child, None)
    graph, _ = analyse(made.form, registry())
    assert graph is not None
    scope = graph.root.nodes[0]
    assert isinstance(scope, RepeatNode)
    return {
        index: body.nodes[0].part.arguments["factor"]  # type: ignore[union-attr]
        for index, body in scope.copies()
    }


def test_a_patch_of_all_copies_reaches_those_of_a_slice() -> None:
    """Whether the number of copies is a number or an expression."""
    for repeat in (7, "=layers"):
        made = patched(spec_of({"2::3": "other", "-1": "last"}, repeat), "stack.*.times")
        assert made == dict.fromkeys(range(7), 5)


def test_a_patch_of_one_copy_splits_a_slice() -> None:
    """The other copies of the slice keep their template."""
    made = patched(spec_of({"2::3": "other", "-1": "last"}, 7), "stack.2.times")

    assert [*made.values()] == [1, 1, 5, 1, 1, 2, 3]


def test_a_patch_of_one_copy_needs_a_number_of_copies() -> None:
    """Which template copy 2 uses is not known before the params are."""
    with pytest.raises(SpecError, match="'repeat' must be a number to select copy 2"):
        patched(spec_of({"2::3": "other", "-1": "last"}), "stack.2.times")


def test_a_template_of_all_copies_need_not_read_what_they_carry() -> None:
    """A value of the last copy is carried to be an output; the canonical form is valid too."""
    spec = spec_of({":": "other"})
    del spec["blocks"]["last"]
    for name, before in (("plain", "before"), ("other", "times.y")):
        spec["blocks"][name]["inputs"]["before"] = "f[B T 4]"
        spec["blocks"][name]["outputs"]["before"] = before
    spec["nodes"]["stack"] |= {"carry": ["x", "before"], "in": {"x": "x", "before": "x"}}
    spec["outputs"]["before"] = "stack.before"

    graph, findings = analyse(loaded(spec).form, registry())

    assert graph is not None
    assert [found.code for found in findings if found.code != "W08"] == []
    assert "instead" not in canonical(graph)["nodes"]["stack"]
    _, findings = analyse(loaded(canonical(graph)).form, registry())
    assert findings == []


def ignoring(instead: dict[str, str], count: int = 2) -> dict[str, Any]:
    """Return a spec with a stack of copies of which only the template `reads` reads `m`."""

    def layer(formula: str, *ports: str) -> dict[str, Any]:
        node = {"use": "elementwise@1", "params": {"y": formula}, "in": {p: p for p in ports}}
        inputs = {"x": "f[B T d]", "m": "f[B T d]"}
        return {"inputs": inputs, "outputs": {"x": "times.y"}, "nodes": {"times": node}}

    wires = {"x": "x", "m": "m"}
    return {
        "format": 1,
        "name": "ignoring",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 4]", "m": "f[B T 4]"},
        "outputs": {"y": "stack.x"},
        "blocks": {
            "reads": layer("x + m", "x", "m"),
            "double": layer("2 * x", "x"),
            "triple": layer("3 * x", "x"),
        },
        "nodes": {
            "stack": {"repeat": count, "block": "reads", "carry": ["x"], "in": wires}
            | {"instead": instead}
        },
    }


def nested(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a spec with its stack inside the copies of another."""
    ports = {"inputs": {"x": "f[B T d]", "m": "f[B T d]"}, "outputs": {"x": "stack.x"}}
    outer = {"repeat": 3, "block": "outer", "carry": ["x"], "in": {"x": "x", "m": "m"}}
    blocks = spec["blocks"] | {"outer": ports | {"nodes": spec["nodes"]}}
    return spec | {"blocks": blocks, "nodes": {"outer": outer}, "outputs": {"y": "outer.x"}}


def beside(spec: dict[str, Any], **kind: Any) -> dict[str, Any]:
    """Return a spec that uses `double` at another width as well."""
    inputs = {"wide_x": "f[B T 6]", "wide_m": "f[B T 6]"}
    more = {**kind, "in": {"x": "wide_x", "m": "wide_m"}}
    return spec | {
        "inputs": spec["inputs"] | inputs,
        "outputs": {"y": "stack.x", "wide": "more.x"},
        "nodes": spec["nodes"] | {"more": more},
    }


@pytest.mark.parametrize(
    "spec",
    [
        ignoring({":": "double"}) | {"blocks": {**ignoring({})["blocks"], "triple": None}},
        ignoring({"::2": "double", "1::2": "triple"}, 4),
        nested(ignoring({":1": "triple", "1:": "double"})),
        beside(ignoring({"0": "double", "2": "triple"}, 3), repeat=2, block="double", carry=["x"]),
    ],
    ids=["all", "two groups", "nested", "another width"],
)
def test_the_full_form_may_ignore_what_a_template_that_is_gone_read(spec: dict[str, Any]) -> None:
    """No copy is left that reads the wire, which is there nevertheless."""
    spec["blocks"] = {name: block for name, block in spec["blocks"].items() if block}
    graph, findings = analyse(loaded(spec).form, registry())
    assert graph is not None, findings

    again, findings = analyse(loaded(canonical(graph)).form, registry())

    assert findings == []
    assert again is not None
    assert canonical(again) == canonical(graph)


def test_a_checkpoint_may_hold_a_template_that_ignores_an_input() -> None:
    """Its spec was valid, with the repeat that excused the template at another width."""
    spec = beside(ignoring({"0": "double", "2": "triple"}, 3), use="double")
    graph, findings = analyse(loaded(spec).form, registry())
    assert graph is not None, findings

    again, findings = analyse(loaded(canonical(graph)).form, registry(), checked=True)

    assert again is not None, findings
    assert canonical(again) == canonical(graph)
