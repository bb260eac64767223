"""Tests of the modules of objectives: their weights, losses, and copies."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from weft.blocks.kernels.decode_state import Capacity
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.canonical import canonical, fingerprint
from weft.specs.load import loaded

from ...objective_blocks import BLOCKS, LINE, PLAIN, TWICE, batch


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the specs."""
    for spec in (LINE, PLAIN, TWICE):
        (tmp_path / f"{spec['name']}.json").write_text(json.dumps(spec), encoding="utf-8")
    return tmp_path


def built(path: Path, seed: int = 1) -> Any:
    """Return the module of a spec that uses the blocks of these tests."""
    return weft.build(weft.load(path, blocks=BLOCKS), seed=seed)


def line(folder: Path, seed: int = 1) -> Any:
    """Return the module of the model alone."""
    return weft.build(weft.load(folder / "line.json", width=8), seed=seed)


def test_the_model_has_the_weights_of_the_model_alone(folder: Path) -> None:
    """So that a run with an objective is the run without it."""
    model, alone = built(folder / "fit.json").model.state_dict(), line(folder).state_dict()

    assert model.keys() == alone.keys()
    assert all(torch.equal(model[name], alone[name]) for name in alone)


def test_the_loss_is_computed_from_the_output_of_the_model(folder: Path) -> None:
    """The sum over the positions of the mask, and their number as its weight."""
    objective, alone, given = built(folder / "fit.json").eval(), line(folder).eval(), batch()

    wanted = (alone(x=given["x"])["y"] - given["x"]).square().mean(-1)[given["mask"]].sum()

    assert objective(**given)["error"].item() == pytest.approx(wanted.item())
    assert objective.weights(**given)["error"].item() == 5 + 3


def test_both_calls_of_a_shared_module_draw_their_own_dropout(folder: Path) -> None:
    """As in R-Drop; in evaluation they agree."""
    objective, given = built(folder / "twice.json"), batch()

    assert objective(**given)["agreement"].item() > 0
    torch.manual_seed(0)
    assert objective.eval()(**given)["agreement"].item() == 0


def test_a_frozen_module_has_neither_gradients_nor_dropout(folder: Path) -> None:
    """Also right after it is built, and after `train`."""
    objective, given = built(folder / "twice.json"), batch()

    assert not objective.teacher.training
    assert objective.model.training
    objective.eval().train()
    assert not objective.teacher.training
    sum(objective(**given).values()).backward()

    assert all(one.grad is None for one in objective.teacher.parameters())
    assert all(one.grad is not None for one in objective.model.parameters())


def test_weights_and_losses_see_the_same_noise(folder: Path) -> None:
    """`weights` runs what the weights depend on, in the order of `forward`, and no model."""
    objective, given = built(folder / "twice.json"), batch()
    objective.model.forward = None
    torch.manual_seed(4)
    weights = objective.weights(**given)
    torch.manual_seed(4)
    noise = given["mask"] & (torch.rand(given["mask"].shape) < 0.5)

    assert weights["agreement"].item() == noise.sum().item()
    assert weights["error"].item() == weights["imitation"].item() == 8


@pytest.mark.parametrize("again", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_computes_the_same(again: Any, folder: Path) -> None:
    """Its classes refer to the class of the model, which is generated from its own spec."""
    objective, given = built(folder / "twice.json").eval(), batch()
    made = again(objective)
    outputs = []
    for one in (objective, made):
        torch.manual_seed(2)
        outputs.append(one(**given))

    assert type(made.model) is type(objective.model)
    assert all(torch.equal(outputs[0][name], outputs[1][name]) for name in outputs[0])
    assert not made.teacher.first.weight.requires_grad


def test_ties_of_the_model_stay_tied(folder: Path) -> None:
    """In the objective, in copies of it, and after a state dict is assigned."""
    tied = copy.deepcopy(LINE)
    tied |= {"tie": [["first.weight", "head.weight"]]}
    tied["params"]["inner"] = "=width"
    (folder / "line.json").write_text(json.dumps(tied), encoding="utf-8")
    objective = built(folder / "fit.json")

    objective.load_state_dict(objective.state_dict(), assign=True)

    for one in (objective, copy.deepcopy(objective)):
        assert one.model.first.weight is one.model.head.weight


def test_a_module_may_be_shared_in_a_model_that_decodes(tmp_path: Path) -> None:
    """Each call has a state of its own, so decoding by steps gives the outputs of `forward`."""
    attend = {"use": "attention@1", "params": {"heads": 2, "causal": True}}
    spec = {
        "format": 1,
        "name": "loop",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]"},
        "outputs": {"y": "again.y"},
        "nodes": {
            "first": {**attend, "in": {"x": "x"}},
            "again": {"share": "first", "in": {"x": "first.y"}},
        },
        "step": {"axis": "T"},
    }
    path = tmp_path / "loop.json"
    path.write_text(json.dumps(spec), encoding="utf-8")
    model: Any = weft.build(path).eval()
    x = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(0))

    state = model.begin(Capacity(2, 1, 4, torch.float32, torch.device("cpu")))
    steps = [model.step(x=x[:, t : t + 1], state=state, position=t)["y"] for t in range(4)]

    torch.testing.assert_close(torch.cat(steps, 1), model(x=x)["y"])
    torch.testing.assert_close(model(x=x)["y"], model.first(model.first(x)))
    assert "first.query.weight" in model.state_dict()
    assert not any(name.startswith("again") for name in model.state_dict())


def test_rules_change_initial_weights(tmp_path: Path) -> None:
    """In order: only what is selected, by the rule's own random numbers, and repeatably."""
    spec: dict[str, Any] = copy.deepcopy(LINE)
    path = tmp_path / "ruled.json"

    def made(*rules: dict[str, Any]) -> dict[str, torch.Tensor]:
        path.write_text(json.dumps({**spec, "init": rules}), encoding="utf-8")
        state: dict[str, torch.Tensor] = weft.build(path, seed=3).state_dict()
        return state

    plain = made()
    ruled = made(
        {"select": "first", "weights": "weight", "scale": "=1 / 4"},
        {"select": "head", "weights": "bias", "constant": 2},
        {"select": "head", "weights": "weight", "uniform": 0.5},
    )

    assert torch.equal(ruled["first.weight"], plain["first.weight"] / 4)
    assert torch.equal(ruled["first.bias"], plain["first.bias"])
    assert ruled["head.bias"].tolist() == [2.0] * 6
    assert not torch.equal(ruled["head.weight"], plain["head.weight"])
    assert ruled["head.weight"].abs().max() <= 0.5
    assert torch.equal(ruled["head.weight"], made({"select": "**", "uniform": 0.5})["head.weight"])
    assert not made({"select": "head", "zeros": True})["head.weight"].any()


def test_rules_of_a_template_and_of_a_model_hold_in_each_copy(folder: Path) -> None:
    """Those around them come last."""
    spec: dict[str, Any] = copy.deepcopy(TWICE)
    held = copy.deepcopy(LINE)
    held["init"] = [{"select": "head", "constant": 3}]
    spec["params"] |= {"model": {"spec": held}, "teacher": {"spec": held}}
    spec["init"] = [{"select": "teacher.head", "weights": "weight", "scale": 2}]
    (folder / "twice.json").write_text(json.dumps(spec), encoding="utf-8")

    state = built(folder / "twice.json").state_dict()

    assert set(state["model.head.weight"].flatten().tolist()) == {3.0}
    assert set(state["teacher.head.weight"].flatten().tolist()) == {6.0}
    assert set(state["teacher.head.bias"].tolist()) == {3.0}


def test_rules_of_an_imported_spec_come_with_it(tmp_path: Path) -> None:
    """Their expressions read the params of that spec; the canonical form has them too."""
    inner = copy.deepcopy(LINE)
    inner["params"]["gain"] = 7
    inner["init"] = [{"select": "head", "weights": "bias", "constant": "=gain"}]
    outer = {
        "format": 1,
        "name": "outer",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 6]"},
        "outputs": {"y": "stack.y"},
        "blocks": {
            "tower": {"spec": "inner", "params": {"width": 6, "gain": 5}},
            "layer": {
                "inputs": {"y": "f[B T 6]"},
                "outputs": {"y": "tower.y"},
                "nodes": {"tower": {"use": "tower", "in": {"x": "y"}}},
            },
        },
        "nodes": {"stack": {"repeat": 2, "block": "layer", "carry": ["y"], "in": {"y": "x"}}},
    }
    for name, spec in (("inner", inner), ("outer", outer)):
        (tmp_path / f"{name}.json").write_text(json.dumps(spec), encoding="utf-8")
    graph = weft.load(tmp_path / "outer.json").graph()
    again = check(loaded(canonical(graph)).form, registry(), checked=True)

    for one in (graph, again):
        state = weft.build(one).state_dict()
        assert state["stack.0.tower.head.bias"].tolist() == [5.0] * 6
        assert state["stack.1.tower.head.bias"].tolist() == [5.0] * 6
    assert fingerprint(again) == fingerprint(graph)
