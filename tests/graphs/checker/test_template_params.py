"""Templates are functions: params with defaults, set by each use, and by each copy of a repeat."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import weft
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.canonical import fingerprint
from weft.graphs.ir.graph import Graph
from weft.specs.load import load_as

MAP: dict[str, Any] = {
    "params": {"width": 5},
    "inputs": {"x": "f[B T d]"},
    "outputs": {"x": "up.y"},
    "nodes": {
        "down": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": "=width"}},
        "up": {"use": "linear@1", "in": {"x": "down.y"}, "params": {"d_out": "=d"}},
    },
}


def spec(node: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """Return a spec with one node, `stack`, that uses the template `map`."""
    return {
        "format": 1,
        "name": "maps",
        "params": {"d": 4},
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T d]"},
        "outputs": {"y": "stack.x"},
        "blocks": {"map": MAP},
        "nodes": {"stack": {"in": {"x": "x"}, **node}},
        **keys,
    }


def graph(value: dict[str, Any], source: str = "maps.json", **overrides: Any) -> Graph:
    """Return the graph of a spec."""
    return check(load_as(value, source).form, registry(), overrides)


def widths(value: dict[str, Any], **overrides: Any) -> dict[str, int]:
    """Return the first size of the weight of each node `down`, by its path."""
    weights = graph(value, **overrides).weights()
    ends = ".down.weight"
    return {path.removesuffix(ends): s[0] for path, s in weights.items() if path.endswith(ends)}


def repeat(**keys: Any) -> dict[str, Any]:
    """Return a repeat of four copies of `map`."""
    return {"repeat": 4, "block": "map", "carry": ["x"], **keys}


def test_a_use_without_params_has_the_defaults() -> None:
    """As a template without params has those of the spec."""
    assert widths(spec({"use": "map"})) == {"stack": 5}


def test_a_use_sets_a_param_by_an_expression_over_the_scope_around_it() -> None:
    """3 * 4, and an override of what it reads."""
    value = spec({"use": "map", "params": {"width": "=3*d"}})

    assert widths(value) == {"stack": 12}
    assert widths(value, d=5) == {"stack": 15}


def test_a_param_of_a_template_shadows_that_of_the_spec() -> None:
    """Inside, `d` is 2 for the use that sets it, and the type of the port follows."""
    inner = {**MAP, "params": {"width": 3, "d": 4}}
    value = spec({"use": "map", "params": {"d": "=d", "width": 1}}, blocks={"map": inner})

    assert widths(value) == {"stack": 1}
    with pytest.raises(weft.SpecError, match=r"wanted f\[B T 2\]"):
        graph(spec({"use": "map", "params": {"d": 2}}, blocks={"map": inner}))


def test_the_params_of_a_use_are_not_seen_by_templates_inside() -> None:
    """Names are resolved where they are written: `width` of `outer` is not that of `map`."""
    outer = {
        "params": {"width": 9},
        "inputs": {"x": "f[B T d]"},
        "outputs": {"x": "second.x"},
        "nodes": {
            "first": {"use": "map", "in": {"x": "x"}},
            "second": {"use": "map", "in": {"x": "first.x"}, "params": {"width": "=width"}},
        },
    }
    value = spec({"use": "outer"}, blocks={"map": MAP, "outer": outer})

    assert widths(value) == {"stack.first": 5, "stack.second": 9}


def test_a_default_may_read_other_params_of_the_template_and_of_the_spec() -> None:
    """2 * 4 + 1, and 2 * 7 + 1 where a use sets the one that it reads."""
    inner = {**MAP, "params": {"width": "=2*half+1", "half": "=d"}}

    assert widths(spec({"use": "map"}, blocks={"map": inner})) == {"stack": 9}
    value = spec({"use": "map", "params": {"half": 7}}, blocks={"map": inner})
    assert widths(value) == {"stack": 15}


def test_a_block_choice_and_a_slot_set_params_of_a_template() -> None:
    """The params of the choice come before those of the node, as with blocks."""
    inner = {**MAP, "outputs": {"y": "up.y"}}
    value = spec({"use": "=chosen", "params": {"width": 2}}, blocks={"map": inner})
    value |= {"params": {"d": 4, "chosen": {"use": "map"}}, "outputs": {"y": "path.y"}}
    value["nodes"]["path"] = {
        "use": "sublayer@1",
        "in": {"x": "stack.y"},
        "fill": {"f": {"use": "map", "params": {"width": "=d-1"}}},
    }

    assert widths(value) == {"stack": 2, "path.f": 3}
    value["params"]["chosen"]["params"] = {"width": 6}
    assert widths(value) == {"stack": 6, "path.f": 3}


def test_a_template_may_take_a_block_choice() -> None:
    """Its node uses what the use passes: another template, with a param."""
    outer = {
        "params": {"f": {"use": "relu@1"}},
        "inputs": {"x": "f[B T d]"},
        "outputs": {"x": "f.x"},
        "nodes": {"f": {"use": "=f", "in": {"x": "x"}}},
    }
    chosen = {"use": "map", "params": {"width": "=d//2"}}
    value = spec({"use": "outer", "params": {"f": chosen}}, blocks={"map": MAP, "outer": outer})

    assert widths(value) == {"stack.f": 2}


def test_each_copy_reads_its_number() -> None:
    """2 ** 0 to 2 ** 3."""
    value = spec(repeat(index="i", params={"width": "=2**i"}))

    assert widths(value) == {f"stack.{i}": 2**i for i in range(4)}


def test_the_index_shadows_a_param_of_the_spec_in_the_params_of_its_repeat_alone() -> None:
    """`d` is the number of the copy there, and 4 in the template."""
    value = spec(repeat(index="d", params={"width": "=d+1"}))

    assert widths(value) == {"stack.0": 1, "stack.1": 2, "stack.2": 3, "stack.3": 4}


def test_copies_with_equal_params_have_one_inside() -> None:
    """`i // 2` is 0, 0, 1, 1."""
    node: Any = graph(spec(repeat(index="i", params={"width": "=i//2+1"}))).root.nodes[0]
    first, second, third, fourth = (id(body) for _, body in node.copies())

    assert first == second != third == fourth


def test_a_repeat_with_an_index_equals_the_same_copies_written_one_by_one() -> None:
    """One fingerprint: the number of the copy is a way of writing, and nothing else."""
    value = spec(repeat(index="i", params={"width": "=i//2+1"}))
    by_hand = spec(repeat(instead={"2": "map_2", "3": "map_2"}))
    fixed = {name: {**MAP, "params": {}} for name in ("map", "map_2")}
    for name, width in (("map", 1), ("map_2", 2)):
        nodes = MAP["nodes"] | {"down": MAP["nodes"]["down"] | {"params": {"d_out": width}}}
        fixed[name]["nodes"] = nodes

    assert fingerprint(graph(value)) == fingerprint(graph(by_hand | {"blocks": fixed}))


def test_a_copy_with_another_template_gets_the_params_that_this_template_has() -> None:
    """`bare` has no params; the other copies follow their numbers."""
    bare = {key: inner for key, inner in MAP.items() if key != "params"}
    bare["nodes"] = MAP["nodes"] | {"down": MAP["nodes"]["down"] | {"params": {"d_out": 8}}}
    node = repeat(index="i", params={"width": "=i+1"}, instead={"2": "bare"})

    assert list(widths(spec(node, blocks={"map": MAP, "bare": bare})).values()) == [1, 2, 8, 4]


def test_a_list_has_an_entry_for_each_copy() -> None:
    """A list that is written there, a param of the spec, and an expression that reads it."""
    params = {"d": 4, "sizes": [3, 1, "=d", 2]}

    assert [*widths(spec(repeat(params={"width": [1, "=d", 2, 8]}))).values()] == [1, 4, 2, 8]
    value = spec(repeat(params={"width": "=sizes"}), params=params)
    assert [*widths(value).values()] == [3, 1, 4, 2]
    assert [*widths(value, sizes=[5, 5, 6, 6]).values()] == [5, 5, 6, 6]
    value = spec(repeat(index="i", params={"width": "=2*sizes+i"}), params=params)
    assert [*widths(value).values()] == [6, 3, 10, 7]


WIDE = MAP | {
    "params": {},
    "nodes": MAP["nodes"] | {"down": MAP["nodes"]["down"] | {"params": {"d_out": 9}}},
}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"=pattern": "wide"}, [5, 9, 5, 9]),
        ({"=kinds == 2": "wide"}, [9, 5, 9, 5]),
        ({"=i % 3 == 0": "wide"}, [9, 5, 5, 9]),
        ({"=pattern": "wide", "0": "wide"}, [9, 9, 5, 9]),
    ],
    ids=["a list of 0 and 1", "a comparison", "the number of the copy", "with a number"],
)
def test_a_rule_says_which_copies_use_another_template(
    keys: dict[str, str], expected: list[int]
) -> None:
    """Lists of the spec, and the index."""
    params = {"d": 4, "pattern": [0, 1, 0, 1], "kinds": [2, 1, 2, 0]}
    read = {word: params[word] for word in ("pattern", "kinds") if word in " ".join(keys)}
    index = {"index": "i"} if "i %" in " ".join(keys) else {}
    node = repeat(instead=keys, **index)

    value = spec(node, blocks={"map": MAP, "wide": WIDE}, params={"d": 4, **read})

    assert [*widths(value).values()] == expected


def test_a_patch_leaves_a_rule_in_place(tmp_path: Path) -> None:
    """What it changes inside is changed for the copies of the rule."""
    node = repeat(instead={"=pattern": "wide"})
    params = {"d": 4, "pattern": [0, 1, 0, 1]}
    value = spec(node, blocks={"map": MAP, "wide": WIDE}, params=params)
    (tmp_path / "maps.json").write_text(json.dumps(value), encoding="utf-8")
    patch = {"select": "stack.*.down[params.d_out=9]", "set": {"params.d_out": 7}}
    child = {"format": 1, "extends": "maps", "name": "child", "params": {"pattern": [1, 1, 0, 0]}}
    child["patch"] = [patch]

    weights = graph(child, str(tmp_path / "child.json")).weights()
    assert [weights[f"stack.{i}.down.weight"][0] for i in range(4)] == [7, 7, 5, 5]
    child["patch"] = [{**patch, "select": "stack.1.down"}]
    with pytest.raises(weft.SpecError, match="rules"):
        graph(child, str(tmp_path / "child.json"))


def test_an_imported_spec_brings_its_rules(tmp_path: Path) -> None:
    """The key reads the param under its new name."""
    node = repeat(instead={"=pattern": "wide"})
    params = {"d": 4, "pattern": [0, 1, 0, 1]}
    value = spec(node, blocks={"map": MAP, "wide": WIDE}, params=params)
    (tmp_path / "maps.json").write_text(json.dumps(value), encoding="utf-8")
    outer = spec({"use": "tower"}, blocks={"tower": {"spec": "maps", "params": {"d": "=d"}}})
    outer["outputs"] = {"y": "stack.y"}

    weights = graph(outer, str(tmp_path / "outer.json")).weights()

    assert [weights[f"stack.stack.{i}.down.weight"][0] for i in range(4)] == [5, 9, 5, 9]


def test_a_patch_changes_one_copy_and_leaves_the_others_to_their_numbers(tmp_path: Path) -> None:
    """Copy 2 gets a template of its own, which has the params of the first one."""
    value = spec(repeat(index="i", params={"width": "=2**i"}))
    (tmp_path / "maps.json").write_text(json.dumps(value), encoding="utf-8")
    patch = {"select": "stack.2.up", "set": {"params.bias": False}}
    child = {"format": 1, "extends": "maps", "name": "child", "patch": [patch]}

    weights = graph(child, str(tmp_path / "child.json")).weights()

    assert {path for path in weights if path.endswith("up.bias")} == {
        "stack.0.up.bias",
        "stack.1.up.bias",
        "stack.3.up.bias",
    }
    assert weights["stack.2.down.weight"] == (4, 4)
    assert weights["stack.3.down.weight"] == (8, 4)


def test_a_patch_of_a_node_leaves_the_same_template_elsewhere_as_it_is(tmp_path: Path) -> None:
    """A use passes it on in a param, where selections do not enter."""
    outer = {
        "params": {"f": {"use": "map"}},
        "inputs": {"x": "f[B T d]"},
        "outputs": {"x": "f.x"},
        "nodes": {"f": {"use": "=f", "in": {"x": "x"}}},
    }
    value = spec({"use": "map"}, blocks={"map": MAP, "outer": outer})
    passed = {"use": "outer", "in": {"x": "stack.x"}, "params": {"f": {"use": "map"}}}
    value["nodes"]["last"], value["outputs"] = passed, {"y": "last.x"}
    (tmp_path / "maps.json").write_text(json.dumps(value), encoding="utf-8")
    patch = {"select": "stack.up", "set": {"params.bias": False}}
    child = {"format": 1, "extends": "maps", "name": "child", "patch": [patch]}

    weights = graph(child, str(tmp_path / "child.json")).weights()

    assert "stack.up.bias" not in weights
    assert "last.f.up.bias" in weights


def test_an_imported_spec_brings_the_params_of_its_templates(tmp_path: Path) -> None:
    """Its own params are renamed; those of its templates keep their names."""
    value = spec(repeat(index="i", params={"width": "=d*(i+1)"}))
    (tmp_path / "maps.json").write_text(json.dumps(value), encoding="utf-8")
    outer = spec({"use": "tower"}, blocks={"tower": {"spec": "maps", "params": {"d": "=d"}}})
    outer |= {"outputs": {"y": "stack.y"}, "params": {"d": 3, "width": 7}, "require": ["width > d"]}

    weights = graph(outer, str(tmp_path / "outer.json")).weights()

    assert [weights[f"stack.stack.{i}.down.weight"] for i in range(4)] == [
        (3, 3),
        (6, 3),
        (9, 3),
        (12, 3),
    ]


@pytest.mark.parametrize(
    ("expression", "copy"),
    [("=3-i", "width = 0"), ("=4-2*i", "width = 0")],
    ids=["the last copy", "the third copy"],
)
def test_a_finding_about_one_copy_says_which_values_it_has(expression: str, copy: str) -> None:
    """The place is that of the param in the repeat, and there is one finding."""
    with pytest.raises(weft.SpecError) as error:
        graph(spec(repeat(index="i", params={"width": expression})))

    [finding] = error.value.findings
    assert finding.code == "P01"
    assert finding.at == "/nodes/stack/params/width"
    assert any(copy in line for line in finding.evidence)


def test_the_nodes_of_all_copies_count_for_the_limit_of_a_spec() -> None:
    """A repeat inside a template reads its number of copies from a param."""
    inner = {
        "params": {"count": 1},
        "inputs": {"x": "f[B T d]"},
        "outputs": {"x": "many.x"},
        "nodes": {
            "many": {"repeat": "=count", "block": "map", "carry": ["x"], "in": {"x": "x"}},
        },
    }
    blocks = {"map": MAP, "inner": inner}
    node = {"repeat": 10, "block": "inner", "carry": ["x"], "params": {"count": 10_000}}
    with pytest.raises(weft.SpecError, match="the expanded spec has 200,000 nodes"):
        graph(spec(node, blocks=blocks))
