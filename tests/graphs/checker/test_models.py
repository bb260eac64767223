"""Tests of models that params hold, and of nodes that share or freeze them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import weft
from weft.blocks.registry import registry
from weft.graphs.advice import advise
from weft.graphs.checker.check import analyse, check
from weft.graphs.diff.diff import diff
from weft.graphs.ir.canonical import canonical, fingerprint
from weft.graphs.ir.graph import Graph
from weft.specs.findings import Finding
from weft.specs.load import load, loaded

from ...objective_blocks import BLOCKS, LINE, PLAIN, TWICE
from ..diff.apply import apply

REGISTRY = registry(BLOCKS)
MODEL = "/params/model"
MIXTURE: dict[str, Any] = {
    "format": 1,
    "name": "mixture",
    "axes": {"B": "batch", "S": "time"},
    "inputs": {"x": "f[B S 8]"},
    "outputs": {"y": "mixture.y", "balance": "mixture.balance"},
    "nodes": {
        "mixture": {
            "use": "mixture_of_experts@1",
            "in": {"x": "x"},
            "params": {"experts": 2, "d_ff": 4},
        }
    },
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    """Return a folder with the specs."""
    for spec in (LINE, PLAIN, TWICE):
        (tmp_path / f"{spec['name']}.json").write_text(json.dumps(spec), encoding="utf-8")
    return tmp_path


def changed(spec: dict[str, Any], **params: Any) -> dict[str, Any]:
    """Return a spec with other params; None removes one."""
    made = copy.deepcopy(spec)
    made["params"] |= params
    made["params"] = {key: value for key, value in made["params"].items() if value is not None}
    return made


def findings(spec: dict[str, Any], folder: Path, **overrides: Any) -> list[Finding]:
    """Return the findings of an objective, as the command line reports them."""
    path = folder / "objective.json"
    path.write_text(json.dumps(spec), encoding="utf-8")
    read = load(path, overrides)
    found = analyse(read.recovered, REGISTRY, read.overrides, source=read.source, lost=read.lost)[1]
    return [*read.mistakes, *map(read.place, found)]


def graph_of(spec: dict[str, Any], folder: Path, **overrides: Any) -> Graph:
    """Return the graph of an objective without findings."""
    assert findings(spec, folder, **overrides) == []
    read = load(folder / "objective.json", overrides)
    return check(read.form, REGISTRY, read.overrides, source=read.source)


def model_in(graph: Graph, name: str = "model") -> Graph:
    """Return the model in a node of an objective."""
    return next(model for node, model in graph.models() if node.name == name)


def test_a_size_that_is_not_set_follows_the_wire(folder: Path) -> None:
    """The model has width 6 in its own file, and 8 where values of width 8 are wired."""
    graph = graph_of(PLAIN, folder)

    assert model_in(graph).params["width"] == 8
    assert graph.parameters() == (8 * 4 + 4) + (4 * 8 + 8)
    assert str(graph.root.type_of("model.y")) == "f[B S 8]"


def test_a_size_that_is_set_does_not_follow_the_wire(folder: Path) -> None:
    """Otherwise a wrong wire would change the model instead of being reported."""
    spec = changed(PLAIN, model={"spec": "line", "params": {"width": 6}})

    found = findings(spec, folder)

    assert [(one.code, one.at) for one in found] == [
        ("T03", "/nodes/model/in/x"),
        ("T03", "/nodes/loss/in/target"),
    ]


def test_params_of_a_model_read_the_params_of_the_objective(folder: Path) -> None:
    """In `params`; the text of the held spec and its patch read those of the held spec."""
    patch = [{"select": "first", "set": {"params.d_out": "=2*inner"}}]
    held = {"spec": "line", "params": {"inner": "=d//2"}, "patch": patch}

    model = model_in(graph_of(changed(PLAIN, model=held), folder))

    assert model.params["inner"] == 4
    assert model.root.weights()["first.weight"] == (8, 8)


def test_a_mistake_in_the_file_of_a_model_is_reported_there(folder: Path) -> None:
    """So that `--fix` and editors show the line that is wrong."""
    wrong = copy.deepcopy(LINE)
    wrong["nodes"]["head"]["in"]["x"] = "drap.y"
    (folder / "line.json").write_text(json.dumps(wrong), encoding="utf-8")

    found = findings(PLAIN, folder)

    assert [(one.code, one.at) for one in found] == [("N02", "/nodes/head/in/x")]
    assert found[0].source == str(folder / "line.json")


def test_a_wrong_value_is_reported_at_the_param_that_sets_it(folder: Path) -> None:
    """The file of the model is right."""
    held = {"spec": "line", "params": {"dropout": 3}}

    found = findings(changed(PLAIN, model=held), folder)

    assert [(one.code, one.at) for one in found] == [("P01", f"{MODEL}/params/dropout")]
    assert found[0].source == str(folder / "objective.json")


@pytest.mark.parametrize("name", ["../line", "/etc/passwd", "sub/line", "..", "line\x00"])
def test_a_file_outside_of_the_folder_is_refused(name: str, folder: Path) -> None:
    """An objective of strangers reads no other files."""
    inner = folder / "inner"
    inner.mkdir()

    found = findings(changed(PLAIN, model={"spec": name}), inner)

    assert [(one.code, one.at) for one in found] == [("N08", f"{MODEL}/spec")]
    assert found[0].help


def test_a_complete_spec_may_stand_in_place_of_the_name(folder: Path) -> None:
    """As in checkpoints, which need no other files."""
    inline = graph_of(changed(PLAIN, model={"spec": LINE}), folder)

    assert fingerprint(inline) == fingerprint(graph_of(PLAIN, folder))


def test_an_override_with_a_name_replaces_the_held_spec(folder: Path) -> None:
    """`--set model=other` exchanges the model of an objective."""
    other = {**copy.deepcopy(LINE), "name": "other"}
    other["params"]["inner"] = 2
    (folder / "other.json").write_text(json.dumps(other), encoding="utf-8")

    graph = graph_of(PLAIN, folder, model="other")

    assert model_in(graph).name == "other"
    assert graph.parameters() == (8 * 2 + 2) + (2 * 8 + 8)


def test_a_model_may_contain_a_model(folder: Path) -> None:
    """Its sizes follow the wires through both."""
    middle = changed(PLAIN, model={"spec": LINE})
    middle |= {"name": "middle", "outputs": {"y": "model.y"}, "inputs": {"x": "f[B S d]"}}
    middle["nodes"] = {"model": PLAIN["nodes"]["model"]}
    del middle["deploy"]

    graph = graph_of(changed(PLAIN, model={"spec": middle}, d=5), folder)

    assert model_in(model_in(graph)).params["width"] == 5
    assert "model.model.first.weight" in graph.weights()


def test_a_spec_that_holds_itself_is_refused(folder: Path) -> None:
    """With a limit on the depth, not with a RecursionError."""
    spec = {**changed(PLAIN, model={"spec": "objective"}), "outputs": {"error": "loss.loss"}}

    assert {one.code for one in findings(spec, folder)} >= {"W06"}


def test_ties_of_a_model_are_ties_of_the_objective(folder: Path) -> None:
    """A tied parameter counts once, at its path in the objective."""
    spec = copy.deepcopy(LINE)
    spec["tie"] = [["first.weight", "head.weight"]]
    spec["params"] |= {"inner": "=width"}

    graph = graph_of(changed(PLAIN, model={"spec": spec}), folder)

    assert graph.ties == (("model.first.weight", "model.head.weight"),)
    assert graph.parameters() == 8 * 8 + 2 * 8


def test_the_canonical_form_gives_the_same_graph(folder: Path) -> None:
    """With its shared call, its frozen teacher and its weights; so checkpoints open unchanged."""
    graph = graph_of(TWICE, folder)
    form = canonical(graph)

    again = check(loaded(form).form, REGISTRY, checked=True)

    assert canonical(again) == form
    assert fingerprint(again) == fingerprint(graph)
    assert again.losses == graph.losses == {"error": 1.0, "agreement": 0.5, "imitation": 2.0}
    assert again.deploy == graph.deploy == "model"


def test_a_shared_call_has_no_weights_of_its_own(folder: Path) -> None:
    """Two lines: the model, applied twice, and the teacher."""
    graph = graph_of(TWICE, folder)

    assert graph.parameters() == 2 * ((8 * 4 + 4) + (4 * 8 + 8))
    assert {path.partition(".")[0] for path in graph.weights()} == {"model", "teacher"}


def test_a_shared_module_may_read_values_over_other_axes(folder: Path) -> None:
    """Weights do not depend on the length of a sequence."""
    spec = copy.deepcopy(PLAIN)
    spec["axes"]["T"] = "time"
    spec["inputs"]["other"] = "f[B T d]"
    spec["nodes"]["again"] = {"share": "model", "in": {"x": "other"}}
    spec["outputs"]["again"] = "again.y"

    assert str(graph_of(spec, folder).root.type_of("again.y")) == "f[B T 8]"


def test_a_shared_module_with_other_shapes_is_reported(folder: Path) -> None:
    """At the key that shares it, with both shapes."""
    spec = copy.deepcopy(PLAIN)
    spec["inputs"]["wide"] = "f[B S 9]"
    spec["nodes"]["again"] = {"share": "model", "in": {"x": "wide"}}
    spec["outputs"]["again"] = "again.y"

    [found] = findings(spec, folder)

    assert (found.code, found.at) == ("W13", "/nodes/again/share")
    assert "first.weight  [4, 8] and [4, 9]" in found.evidence


def test_outputs_read_by_wrong_nodes_are_not_reported_as_unread(folder: Path) -> None:
    """The mistake is that of the reader."""
    spec = copy.deepcopy(TWICE)
    del spec["nodes"]["agree"], spec["nodes"]["imitate"]
    wires = {"x": "model.y", "target": "again.y", "mask": "noise.y"}
    spec["nodes"]["agree"] = {"use": "squared_eror@1", "in": wires}
    spec["outputs"] = {"error": "loss.loss", "agreement": "agree.loss"}
    spec["nodes"]["loss"]["in"]["x"] = "teacher.y"
    spec["losses"] = {"agreement": "=alpha"}

    assert {one.code for one in findings(spec, folder)} == {"N01"}


def test_the_losses_of_a_model_need_no_wire(folder: Path) -> None:
    """Training adds the balance of experts by itself, so nothing is reported."""
    spec = {**changed(PLAIN, model={"spec": MIXTURE})}

    graph = graph_of(spec, folder)

    assert graph.root.unwired_losses() == ["model.balance"]
    assert advise(graph) == []


def test_a_diff_names_what_training_reads(folder: Path) -> None:
    """And `apply` makes the new form from the old one; shared calls repeat no changes."""
    old = graph_of(TWICE, folder)
    spec = changed(TWICE, model={"spec": "line", "params": {"inner": 5}}, alpha=0.25)
    del spec["nodes"]["teacher"]["frozen"]
    new = graph_of(spec, folder)

    found = diff(old, new)
    forms = [canonical(each, models="templates") for each in (old, new)]

    shown = [(one.path, one.name) for one in found.changes if not one.follows]
    assert ("", "losses") in shown
    assert ("teacher", "frozen") in shown
    assert ("model.first", "d_out") in shown
    assert not any(path.startswith("again") for path, _ in shown)
    assert apply(found, forms[0]) == forms[1]


def test_the_work_of_nested_models_is_bounded(tmp_path: Path) -> None:
    """Three files of 300 nodes each would hold 27 million nodes."""
    for name, inner in (("outer", "middle"), ("middle", "inner"), ("inner", "leaf")):
        nodes = {f"m{i}": {"use": "=model", "in": {"ids": "ids"}} for i in range(300)}
        outputs = {f"y{i}": f"m{i}.y0" if inner != "leaf" else f"m{i}.y" for i in range(300)}
        write(tmp_path / f"{name}.json", nodes, outputs, {"model": {"spec": inner}})
    leaf = {"embedding": {"use": "embedding@1", "params": {"d_model": 4}, "in": {"ids": "ids"}}}
    write(tmp_path / "leaf.json", leaf, {"y": "embedding.y"}, {})

    findings = weft.check(tmp_path / "outer.json")

    assert "P06" in {finding.code for finding in findings}


def write(
    file: Path, nodes: dict[str, Any], outputs: dict[str, str], params: dict[str, Any]
) -> None:
    """Write a spec that reads ids."""
    spec = {"format": 1, "name": file.stem, "params": params, "inputs": {"ids": "ids:9[B T]"}}
    axes = {"axes": {"B": "batch", "T": "time"}}
    spec = {**spec, **axes, "nodes": nodes, "outputs": outputs}
    file.write_text(json.dumps({key: value for key, value in spec.items() if value}))


def test_a_model_under_several_names_is_checked_once(
    count_calls: Callable[[Callable[[], object]], int],
) -> None:
    """Nine params name the same model on each of three levels, 729 of the innermost one."""

    def around(inner: dict[str, Any], names: int) -> dict[str, Any]:
        params = {"m0": {"spec": inner}} | {f"m{n}": f"=m{n - 1}" for n in range(1, names)}
        nodes = {
            f"n{n}": {"use": f"=m{n}", "in": {"x": f"n{n - 1}.y" if n else "x"}}
            for n in range(names)
        }
        outputs = {"y": f"n{names - 1}.y"}
        return {**leaf, "params": params, "nodes": nodes, "outputs": outputs}

    node = {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": 4}}
    leaf: dict[str, Any] = {
        "format": 1,
        "name": "model",
        "axes": {"B": "batch"},
        "inputs": {"x": "f[B 4]"},
        "nodes": {"a": node},
        "outputs": {"y": "a.y"},
    }
    few, many = (around(around(around(leaf, n), n), n) for n in (3, 9))

    calls = [
        count_calls(lambda spec=spec: check(loaded(spec).form, registry()))  # type: ignore[misc]
        for spec in (few, many)
    ]

    assert calls[1] < 4 * calls[0]
