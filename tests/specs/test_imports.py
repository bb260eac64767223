"""Tests of specs that are imported as templates."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from weft import check as check_file
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.canonical import canonical, fingerprint
from weft.graphs.ir.graph import Graph, TemplateNode
from weft.runtime.codegen.build import build
from weft.specs import inherit
from weft.specs.findings import SpecError
from weft.specs.form import BUDGETS
from weft.specs.load import load, loaded
from weft.specs.reader import read_value

ENCODER: dict[str, Any] = {
    "format": 1,
    "name": "encoder",
    "doc": "A small encoder.",
    "params": {"d": 8, "wide": "=2*d", "layers": 2, "map": {"use": "wider"}},
    "require": ["wide % 2 == 0"],
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"x": "f[B T d]", "mask": "mask[B T]"},
    "outputs": {"x": "stack.x"},
    "blocks": {
        "layer": {
            "inputs": {"x": "f[B T d]", "mask": "mask[B T]"},
            "outputs": {"x": "map.y"},
            "nodes": {
                "read": {
                    "use": "attention@1",
                    "in": {"x": "x", "mask": "mask"},
                    "params": {"heads": "=d//4"},
                },
                "map": {"use": "sublayer@1", "in": {"x": "read.y"}, "fill": {"f": {"use": "=map"}}},
            },
        },
        "wider": {
            "inputs": {"x": "f[B T d]"},
            "outputs": {"y": "map.y"},
            "nodes": {
                "map": {"use": "feed_forward@1", "in": {"x": "x"}, "params": {"d_ff": "=wide"}}
            },
        },
    },
    "nodes": {
        "stack": {
            "repeat": "=layers",
            "block": "layer",
            "carry": ["x"],
            "in": {"x": "x", "mask": "mask"},
        }
    },
}
TWO = {
    "format": 1,
    "name": "two",
    "params": {"width": 12, "axis_t": 3},
    "axes": {"B": "batch", "S": "time", "T": "time"},
    "inputs": {
        "a": "f[B S width]",
        "b": "f[B T width]",
        "a_mask": "mask[B S]",
        "b_mask": "mask[B T]",
    },
    "outputs": {"a": "left.x", "b": "right.y"},
    "blocks": {"tower": {"spec": "encoder", "params": {"d": "=width", "layers": "=axis_t"}}},
    "nodes": {
        "left": {"use": "tower", "in": {"x": "a", "mask": "a_mask"}},
        "again": {"use": "tower", "in": {"x": "b", "mask": "b_mask"}},
        "right": {"use": "linear@1", "in": {"x": "again.x"}, "params": {"d_out": 1}},
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with both specs."""
    for spec in (ENCODER, TWO):
        (tmp_path / f"{spec['name']}.json").write_text(json.dumps(spec), encoding="utf-8")
    return tmp_path


def graph_of(path: Path, **params: Any) -> Graph:
    """Return the graph of a file."""
    spec = load(path)
    return check(spec.form, registry(), params)


def test_a_spec_is_a_template_over_any_axis(folder: Path) -> None:
    """The same tower reads S and T, with width and layers of the importing spec."""
    graph = graph_of(folder / "two.json")

    assert str(graph.outputs["a"]) == "f[B S 12]"
    assert str(graph.outputs["b"]) == "f[B T 1]"
    weights = graph.weights()
    assert weights["left.stack.2.map.f.map.inner.weight"] == (24, 12)
    assert weights["again.stack.0.read.query.weight"] == (12, 12)


def test_a_param_may_have_the_name_of_a_function(folder: Path) -> None:
    """The call stays a call, and the param is that of the imported spec."""
    named = {**ENCODER, "params": {**ENCODER["params"], "min": 3, "wide": "=min(min, 2)*d"}}
    (folder / "encoder.json").write_text(json.dumps(named), encoding="utf-8")

    weights = graph_of(folder / "two.json").weights()

    assert weights["left.stack.0.map.f.map.inner.weight"] == (24, 12)


def test_an_imported_spec_computes_the_same_as_the_spec(folder: Path) -> None:
    """The outputs are equal for the same weights."""
    alone = build(graph_of(folder / "encoder.json", d=12, layers=3)).eval()
    both: Any = build(graph_of(folder / "two.json")).eval()
    both.left.load_state_dict(alone.state_dict())
    x, mask = torch.randn(2, 5, 12), torch.ones(2, 5, dtype=torch.bool)

    given = both(a=x, b=x, a_mask=mask, b_mask=mask)["a"]

    torch.testing.assert_close(given, alone(x=x, mask=mask)["x"], rtol=0, atol=0)


def test_a_spec_that_is_imported_often_is_read_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each template is its own: params that one entry sets do not change the others."""
    read: list[str] = []

    def counted(path: Path) -> Any:
        read.append(path.stem)
        return read_value(path)

    tower = TWO["blocks"]["tower"]
    blocks = {"tower": tower, "low": {**tower, "params": {"d": 4}}}
    low = {"use": "low", "in": {"x": "low_x", "mask": "a_mask"}}
    value = {**TWO, "blocks": blocks, "nodes": {**TWO["nodes"], "low": low}}
    value["inputs"] = {**TWO["inputs"], "low_x": "f[B S 4]"}
    value["outputs"] = {**TWO["outputs"], "low": "low.x"}
    (folder / "two.json").write_text(json.dumps(value), encoding="utf-8")
    monkeypatch.setattr(inherit, "read_value", counted)

    graph = graph_of(folder / "two.json")

    assert read == ["two", "encoder"]
    assert graph.weights()["left.stack.0.map.f.map.inner.weight"] == (24, 12)
    assert graph.weights()["low.stack.0.map.f.map.inner.weight"] == (8, 4)


def test_its_params_can_be_set_from_outside(folder: Path) -> None:
    """Under the prefixed name; the imported requirements still hold."""
    graph = graph_of(folder / "two.json", tower__wide=6)

    assert graph.weights()["left.stack.0.map.f.map.inner.weight"] == (6, 12)
    with pytest.raises(SpecError, match="'tower__wide % 2 == 0' does not hold"):
        graph_of(folder / "two.json", tower__wide=5)


def test_a_mistake_inside_is_reported_in_the_imported_file(folder: Path) -> None:
    """The finding points into the imported file."""
    broken = json.loads(json.dumps(ENCODER))
    broken["blocks"]["layer"]["nodes"]["read"]["params"]["hedas"] = 1
    (folder / "encoder.json").write_text(json.dumps(broken), encoding="utf-8")
    spec = load(folder / "two.json")

    with pytest.raises(SpecError) as error:
        check(spec.form, registry())
    placed = [spec.place(finding) for finding in error.value.findings]

    assert [(Path(f.source).name, f.code, f.at) for f in placed] == [
        ("encoder.json", "N04", "/blocks/layer/nodes/read/params/hedas")
    ]


def test_a_child_may_import_a_spec(folder: Path) -> None:
    """A child may import a spec and insert a node that uses it."""
    child = {
        "format": 1,
        "name": "child",
        "extends": "encoder",
        "blocks": {"more": {"spec": "encoder", "params": {"layers": 1}}},
        "patch": [
            {
                "select": "stack",
                "insert_after": {"then": {"use": "more", "in": {"x": "@", "mask": "mask"}}},
                "port": "x",
                "output": "x",
            }
        ],
    }
    path = folder / "child.json"
    path.write_text(json.dumps(child), encoding="utf-8")

    weights = graph_of(path).weights()

    assert "stack.1.read.query.weight" in weights
    assert "then.stack.0.read.query.weight" in weights
    assert "then.stack.1.read.query.weight" not in weights


def test_a_circle_is_refused(folder: Path) -> None:
    """A spec may not import itself through another spec."""
    (folder / "encoder.json").write_text(
        json.dumps({**ENCODER, "blocks": {**ENCODER["blocks"], "two": {"spec": "two"}}}),
        encoding="utf-8",
    )

    with pytest.raises(SpecError) as error:
        _ = load(folder / "two.json").form

    assert [(f.code, f.at) for f in error.value.findings] == [("S07", "/blocks/two/spec")]


def test_no_path_leads_out_of_the_folder(folder: Path) -> None:
    """Only a plain name is accepted."""
    value = {**TWO, "blocks": {"tower": {"spec": "../two/encoder"}}}
    (folder / "two.json").write_text(json.dumps(value), encoding="utf-8")

    with pytest.raises(SpecError) as error:
        _ = load(folder / "two.json").form

    assert [f.code for f in error.value.findings] == ["N08"]


def placed(folder: Path, **keys: Any) -> list[tuple[str, str]]:
    """Return code and pointer of the findings of the importing spec with changed keys."""
    (folder / "two.json").write_text(json.dumps({**TWO, **keys}), encoding="utf-8")
    with pytest.raises(SpecError) as error:
        _ = load(folder / "two.json").form
    return [(f.code, f.at) for f in error.value.findings]


def test_name_collisions_are_errors(folder: Path) -> None:
    """A collision with an existing param or template is an error, in either order."""
    own = {"inputs": {"x": "f[B T 8]"}, "outputs": {"x": "x"}, "nodes": {}}
    params = {**TWO["params"], "tower__layers": 5}

    assert placed(folder, params=params) == [("X04", "/blocks/tower")]
    for blocks in (
        {"tower__layer": own, **TWO["blocks"]},
        {**TWO["blocks"], "tower__layer": own},
    ):
        assert placed(folder, blocks=blocks) == [("X04", "/blocks/tower")]


def test_an_unbound_name_stays_unbound(folder: Path) -> None:
    """Even if a param of the importing spec has the same name."""
    generic = json.loads(json.dumps(ENCODER))
    generic["blocks"]["wider"]["inputs"]["x"] = "f[B T width]"
    (folder / "encoder.json").write_text(json.dumps(generic), encoding="utf-8")
    tower = {"spec": "encoder", "params": {"d": 8, "layers": 1}}
    inputs = {**TWO["inputs"], "a": "f[B S 8]", "b": "f[B T 8]"}
    value = {**TWO, "inputs": {**inputs, "c": "f[B T width]"}, "blocks": {"tower": tower}}
    value["params"] = {"width": 12}
    value["outputs"] = {**TWO["outputs"], "c": "c"}
    (folder / "two.json").write_text(json.dumps(value), encoding="utf-8")

    weights = graph_of(folder / "two.json").weights()

    assert weights["left.stack.0.map.f.map.inner.weight"] == (16, 8)


def test_budgets_stay_with_the_spec_that_they_measure(folder: Path) -> None:
    """Budgets are not imported; the other requirements are."""
    small = {**ENCODER, "require": [*ENCODER["require"], "parameters <= 2000"]}
    (folder / "encoder.json").write_text(json.dumps(small), encoding="utf-8")

    assert graph_of(folder / "encoder.json").parameters() <= 2000
    assert graph_of(folder / "two.json").parameters() > 2000
    assert load(folder / "two.json").form.require == ("tower__wide % 2 == 0",)
    assert BUDGETS.keys() == {"parameters", "flops", "decode_state"}


def test_an_imported_copy_may_be_another_template(folder: Path) -> None:
    """`instead` uses the prefixed name of the template."""
    value = json.loads(json.dumps(ENCODER))
    value["blocks"]["other"] = json.loads(json.dumps(ENCODER["blocks"]["layer"]))
    value["blocks"]["other"]["nodes"]["read"]["params"]["heads"] = 1
    value["nodes"]["stack"]["instead"] = {"1": "other"}
    (folder / "encoder.json").write_text(json.dumps(value), encoding="utf-8")

    form = load(folder / "two.json").form

    assert form.blocks["tower"].nodes["stack"].instead == {"1": "tower__other"}
    assert graph_of(folder / "two.json").weights()


@pytest.mark.parametrize(
    "select",
    [
        "/blocks/layer",
        "/blocks/la*",
        "/blocks/*er",
        "stack.*[use=layer]",
        "**[block=layer]",
        "**[use=attention@1]",
        "**[use=*]",
    ],
)
def test_rules_for_initial_weights_select_the_imported_templates(folder: Path, select: str) -> None:
    """A rule names templates as its file does, and selects the same parameters when imported."""
    rule = {"select": select, "weights": "query.weight", "normal": 0.5}
    value = {**ENCODER, "init": [rule]}
    (folder / "encoder.json").write_text(json.dumps(value), encoding="utf-8")

    own = graph_of(folder / "encoder.json").root.init
    node = graph_of(folder / "two.json").root.nodes[0]

    assert isinstance(node, TemplateNode)
    paths = tuple(f"stack.{copy}.read.query.weight" for copy in range(3))
    assert [rule.paths for rule in (*own, *node.body.init)] == [paths[:2], paths]


TIED: dict[str, Any] = {
    "format": 1,
    "name": "tied",
    "params": {"d": 8, "layers": 2},
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"x": "f[B T d]"},
    "outputs": {"y": "up.y"},
    "blocks": {
        "pair": {
            "inputs": {"x": "f[B T d]"},
            "outputs": {"x": "two.y"},
            "nodes": {
                "one": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": "=d"}},
                "two": {"use": "linear@1", "in": {"x": "one.y"}, "params": {"d_out": "=d"}},
            },
            "tie": [["one.weight", "two.weight"]],
        }
    },
    "nodes": {
        "stack": {"repeat": "=layers", "block": "pair", "carry": ["x"], "in": {"x": "x"}},
        "down": {"use": "linear@1", "in": {"x": "stack.x"}, "params": {"d_out": "=d"}},
        "up": {"use": "linear@1", "in": {"x": "down.y"}, "params": {"d_out": "=d"}},
    },
    "tie": [["down.weight", "up.weight"], ["stack.*.one.bias"]],
}
PAIR = {
    "format": 1,
    "name": "pair",
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"x": "f[B T 8]"},
    "outputs": {"y": "right.y"},
    "blocks": {"tower": {"spec": "tied", "params": {"d": 8}}},
    "nodes": {
        "left": {"use": "tower", "in": {"x": "x"}},
        "right": {"use": "tower", "in": {"x": "left.y"}},
    },
    "tie": [["left.up.weight", "right.up.weight"]],
}


def test_ties_of_an_imported_spec_hold_in_every_copy(tmp_path: Path) -> None:
    """Those of its templates too; a group of the importing spec that shares a member joins two."""
    for spec in (TIED, PAIR):
        (tmp_path / f"{spec['name']}.json").write_text(json.dumps(spec), encoding="utf-8")
    graph = graph_of(tmp_path / "pair.json")
    model: Any = build(graph)

    ends = ("left.up.weight", "right.up.weight", "left.down.weight", "right.down.weight")
    pairs = {
        (f"{side}.stack.{copy}.one.weight", f"{side}.stack.{copy}.two.weight")
        for side in ("left", "right")
        for copy in range(2)
    }
    biases = {
        (f"{side}.stack.0.one.bias", f"{side}.stack.1.one.bias") for side in ("left", "right")
    }
    assert {frozenset(group) for group in graph.ties} == {
        *map(frozenset, [ends]),
        *map(frozenset, pairs),
        *map(frozenset, biases),
    }
    tower = 8 * 8 + 2 * 8 + 2 * 8 * 8 + 2 * 8 + 8
    assert graph.parameters() == 2 * tower - 8 * 8
    assert sum(one.numel() for one in model.parameters()) == graph.parameters()
    assert model.left.down.weight is model.right.up.weight

    again = check(loaded(canonical(graph)).form, registry(), checked=True)
    assert fingerprint(again) == fingerprint(graph)


def test_a_wrong_tie_of_a_template_is_reported_in_its_spec(tmp_path: Path) -> None:
    """Once, however often the template is used."""
    wrong = copy.deepcopy(TIED)
    wrong["blocks"]["pair"]["tie"] = [["one.weight", "too.weight"]]
    for spec in (wrong, PAIR):
        (tmp_path / f"{spec['name']}.json").write_text(json.dumps(spec), encoding="utf-8")

    [found] = check_file(tmp_path / "pair.json")

    assert (found.code, found.at) == ("N07", "/blocks/pair/tie/0/1")
    assert found.source == str(tmp_path / "tied.json")
    assert found.help == "did you mean 'two.weight'?"


def test_a_spec_imported_twice_has_two_sets_of_params(folder: Path) -> None:
    """A deep tower and a narrow one of one file: 3 layers of width 16, and 1 layer of width 8."""
    spec = copy.deepcopy(TWO)
    spec["params"] = {"width": 16}
    spec["inputs"] |= {"b": "f[B T 8]"}
    spec["blocks"] = {
        "deep": {"spec": "encoder", "params": {"d": "=width", "layers": 3}},
        "narrow": {"spec": "encoder", "params": {"layers": 1}},
    }
    spec["nodes"] = {
        "left": {"use": "deep", "in": {"x": "a", "mask": "a_mask"}},
        "right": {"use": "narrow", "in": {"x": "b", "mask": "b_mask"}},
    }
    spec["outputs"]["b"] = "right.x"
    path = folder / "towers.json"
    path.write_text(json.dumps(spec))

    graph = graph_of(path, narrow__wide=4)

    def layer(width: int, inner: int) -> int:
        attention = 4 * (width * width + width)
        return attention + width * inner + inner + inner * width + width + 2 * width

    assert graph.parameters() == 3 * layer(16, 32) + layer(8, 4)


@pytest.mark.parametrize("param", ["layers", "layrs"])
def test_a_use_that_sets_a_param_of_an_import_is_told_the_ways(folder: Path, param: str) -> None:
    """An import is one set of params: they are set there, or the spec is imported again."""
    spec = copy.deepcopy(TWO)
    spec["nodes"]["left"]["params"] = {param: 3}
    path = folder / "uses.json"
    path.write_text(json.dumps(spec))

    [finding] = check_file(path)

    assert (finding.code, finding.at) == ("N04", f"/nodes/left/params/{param}")
    assert finding.help == (
        "set 'layers' in 'params' of the import 'tower', for all its uses; for another value,"
        " import the spec once more under another name"
    )
