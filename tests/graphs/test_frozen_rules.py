"""Rules of `init` that freeze weights: they count as parameters, and do not train."""

from __future__ import annotations

from typing import Any

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.draw.diagram import diagram
from weft.graphs.draw.outline import as_json, outline, render
from weft.graphs.ir.canonical import canonical, fingerprint
from weft.graphs.ir.graph import Graph
from weft.graphs.ir.traverse import fixed_weights
from weft.graphs.passes.freeze import trained_weights
from weft.specs.findings import SpecError
from weft.specs.load import loaded


def spec(*rules: dict[str, Any], inner: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    """Return a spec with a table that is tied to the last map, and two copies of a linear map."""
    linear = {"use": "linear@1", "params": {"d_out": 4}}
    return {
        "format": 1,
        "name": "frozen",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"tokens": "ids:9[B T]"},
        "outputs": {"logits": "head.y"},
        "blocks": {
            "layer": {
                "inputs": {"x": "f[B T 4]"},
                "outputs": {"x": "map.y"},
                "nodes": {"map": {**linear, "in": {"x": "x"}}},
                "init": [*inner],
            }
        },
        "nodes": {
            "table": {"use": "embedding@1", "in": {"ids": "tokens"}, "params": {"d_model": 4}},
            "stack": {"repeat": 2, "block": "layer", "carry": ["x"], "in": {"x": "table.y"}},
            "head": {
                "use": "linear@1",
                "in": {"x": "stack.x"},
                "params": {"d_out": 9, "bias": False},
            },
        },
        "tie": [["table.weight", "head.weight"]],
        "init": [*rules],
    }


def graph(value: dict[str, Any]) -> Graph:
    """Return the graph of a spec."""
    return check(loaded(value).form, registry())


def test_a_rule_freezes_what_it_selects_and_what_is_tied_to_it() -> None:
    """The last map is the table."""
    rule = {"select": "table", "frozen": True}

    assert {*fixed_weights(graph(spec(rule)))} == {"table.weight", "head.weight"}


def test_a_rule_of_a_template_freezes_the_weights_of_each_copy() -> None:
    """And of no other weight than those of the name."""
    rule = {"select": "map", "weights": "bias", "zeros": True, "frozen": True}

    frozen = {*fixed_weights(graph(spec(inner=(rule,))))}

    assert frozen == {"stack.0.map.bias", "stack.1.map.bias"}


def test_frozen_weights_do_not_count_as_trained() -> None:
    """A map of 4 x 4 with a bias in each copy, and a table of 9 x 4: 76, of which 40 train."""
    value = graph(spec({"select": "table", "frozen": True}))

    assert trained_weights(value, ()) == {
        f"stack.{copy}.map.{name}" for copy in (0, 1) for name in ("weight", "bias")
    }
    assert render(value).startswith("frozen: 76 parameters, of which 40 train")
    assert as_json(value)["trained"] == 40
    assert as_json(graph(spec()))["trained"] == 76


def test_the_outline_and_the_drawing_show_what_is_frozen() -> None:
    """A node of which some copies train is not marked."""
    everywhere = graph(spec({"select": "stack.*.map", "frozen": True}))
    once = graph(spec({"select": "stack.0.map", "frozen": True}))

    lines = {line.path: line.shown for line in outline(everywhere)}
    assert "frozen" in lines["stack.*.map"]
    assert "frozen" not in lines["table"]
    assert not any("frozen" in line.shown for line in outline(once))
    assert "\N{SNOWFLAKE}" in diagram(everywhere).source
    assert "\N{SNOWFLAKE}" not in diagram(once).source


def test_the_canonical_form_keeps_rules_that_freeze() -> None:
    """With and without an action, and another digest than a rule that trains."""
    rules = ({"select": "table", "frozen": True}, {"select": "stack", "scale": 0.5, "frozen": True})
    value = graph(spec(*rules))
    again = graph(canonical(value))

    assert fingerprint(again) == fingerprint(value)
    assert fixed_weights(again) == fixed_weights(value)
    assert fingerprint(graph(spec(rules[0], {"select": "stack", "scale": 0.5}))) != fingerprint(
        value
    )


@pytest.mark.parametrize(
    ("rule", "at"),
    [
        ({"select": "table", "frozen": False}, "/init/0"),
        ({"select": "tabel", "frozen": True}, "/init/0/select"),
        ({"select": "table", "weights": "bias", "frozen": True}, "/init/0/weights"),
        ({"select": "table", "frozen": True, "zeros": True, "constant": 1}, "/init/0"),
    ],
)
def test_a_wrong_rule_is_found(rule: dict[str, Any], at: str) -> None:
    """No action, nothing selected, and two actions."""
    with pytest.raises(SpecError) as error:
        graph(spec(rule))

    assert [(f.code, f.at) for f in error.value.findings] == [("W14", at)]
