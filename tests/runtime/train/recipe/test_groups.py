"""Which weights each optimizer of a run updates, at which rate, resumed and on many processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from weft.runtime import api
from weft.runtime.checkpoint.checkpoint import tensors_in
from weft.runtime.codegen.build import build
from weft.runtime.spec.check import graph_of
from weft.runtime.train.recipe.groups import weight_groups, wrong_groups
from weft.runtime.train.recipe.optimize import make_optimizer, set_rates
from weft.runtime.train.recipe.optimizers import OPTIMIZERS
from weft.runtime.train.run import Run
from weft.specs.load import load

Maker = Callable[..., Run]
TABLES = "**[use=embedding@1]"
GROUPS = [
    {"select": TABLES, "rate": 0.3},
    {"select": "**.bias", "factor": 0.5},
    {"select": "**[dim=2]", "except": [TABLES], "type": "muon", "rate": 0.02},
]
"""Three groups that leave the gains of the norms to the optimizer of all."""
TWO = {"type": "adamw", "clip": 1.0, "groups": GROUPS[2:]}
RISE = {"peak": 0.003, "pieces": [{"to": 1, "over": 0.5}, {"shape": "sqrt", "to": 0.1}]}
SMALL = {"vocab": 20, "d_model": 16, "heads": 2, "d_ff": 24, "layers": 1}


def settings(*groups: dict[str, Any], **options: Any) -> Any:
    """Return the settings of an optimizer as a run file has them."""
    return OPTIMIZERS.validate({"type": "adamw", **options, "groups": list(groups)})


def test_every_weight_is_in_one_group() -> None:
    """A tied weight counts once, wherever it is selected."""
    graph = graph_of(load("transformer-base", SMALL))
    tied = {path: group[0] for group in graph.ties for path in group}
    weights = {tied.get(path, path) for path in graph.root.weights()}

    groups = weight_groups(settings(*GROUPS), graph, graph.root.weights())

    listed = [path for group in groups for path in group.weights]
    assert len(listed) == len(set(listed))
    assert set(listed) == weights
    assert [group.select for group in groups] == ["", *(group["select"] for group in GROUPS)]
    assert {path.rpartition(".")[2] for path in groups[0].weights} == {"weight"}
    assert groups[1].weights == (graph.ties[0][0],)
    assert all(path.endswith(".bias") for path in groups[2].weights)


def test_each_weight_moves_at_the_rate_of_its_group() -> None:
    """By hand: the first update of Adam is the rate times the sign of the gradient."""
    graph = graph_of(load("transformer-base", SMALL))
    model = build(graph)
    groups = weight_groups(settings(*GROUPS[:2]), graph, graph.root.weights())
    optimizer = make_optimizer(model, groups, 0.01)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)

    set_rates(optimizer, 0.5, 1, 1)
    optimizer.step()

    for group, rate in zip(groups, (0.005, 0.15, 0.0025), strict=True):
        for name in group.weights:
            moved = before[name] - model.get_parameter(name)
            torch.testing.assert_close(moved, torch.full_like(moved, rate), rtol=1e-4, atol=1e-6)


def test_an_option_that_changes_is_set_before_each_update() -> None:
    """Momentum from 0.5 to 0.9 over four updates: 0.6, 0.7, 0.8, 0.9."""
    graph = graph_of(load("transformer-base", SMALL))
    changing = settings(type="sgd", momentum=[{"from": 0.5, "to": 0.9}])
    groups = weight_groups(changing, graph, graph.root.weights())
    optimizer = make_optimizer(build(graph), groups, 1.0)

    seen = []
    for update in (1, 2, 3, 4):
        set_rates(optimizer, 1.0, update, 4)
        seen += [group["momentum"] for group in optimizer.param_groups[:1]]

    assert seen == pytest.approx([0.6, 0.7, 0.8, 0.9])


def test_vectors_decay_only_in_a_group_that_says_so() -> None:
    """A group of biases with weight decay decays them; matrices always do."""
    graph = graph_of(load("transformer-base", SMALL))
    model = build(graph)
    decaying = settings({"select": "**.bias", "weight_decay": 0.2}, weight_decay=0.1)
    groups = weight_groups(decaying, graph, graph.root.weights())

    decays = {
        (bool(group["params"][0].dim() > 1), group["weight_decay"])
        for group in make_optimizer(model, groups, 1.0).param_groups
    }

    assert decays == {(True, 0.1), (False, 0.0), (False, 0.2)}


def test_an_optimizer_that_updates_nothing_is_told() -> None:
    """All weights belong to groups of another one, so its options mean nothing."""
    graph = graph_of(load("transformer-base", SMALL))
    idle = settings({"select": "**", "type": "sgd"}, betas=[0.8, 0.9])

    [finding] = wrong_groups(idle, graph, graph.root.weights())

    assert (finding.code, finding.at) == ("R01", "/optimizer/betas")


@pytest.mark.integration
@pytest.mark.parametrize("name", ["two optimizers", "batches and dropout"])
def test_a_run_that_changes_resumes_with_the_same_bits(
    toy_run: Maker, tmp_path: Path, name: str
) -> None:
    """Rates, batches of an update and dropout are functions of the update."""
    changes: dict[str, Any] = {"optimizer": TWO, "schedule": RISE}
    if name != "two optimizers":
        pieces = [{"from": 1, "over": 3}, {"from": 2, "to": 4}]
        changes = {"accumulate": pieces, "dropout": [{"over": 3}, {"to": 1}]}
    run = toy_run(checkpoint={"every": 6, "keep": 2, "average": 0}, **changes)
    api.train(run, out=tmp_path / "straight")
    api.train(run, out=tmp_path / "halves", listener=Stopper(6))

    api.train(run, out=tmp_path / "halves", resume=True)

    for kind in ("weights", "optimizer"):
        left, right = (
            tensors_in(tmp_path / folder / "checkpoints/000012", kind)
            for folder in ("straight", "halves")
        )
        assert left.keys() == right.keys()
        assert all(left[key].equal(right[key]) for key in left)


@pytest.mark.integration
def test_an_update_has_the_batches_of_its_piece(toy_run: Maker, tmp_path: Path) -> None:
    """As many epochs as batches: 3 updates of 1, then 9 of 4, read 39 batches."""
    run = toy_run(accumulate=[{"from": 1, "over": 3}, {"from": 4}])
    straight = toy_run(accumulate=1, updates=39)

    states = [api.train(run, out=tmp_path / "run").state]
    states.append(api.train(straight, out=tmp_path / "straight").state)

    assert states[0].epoch == states[1].epoch > 0
    assert states[0].position == states[1].position


@pytest.mark.integration
def test_rates_follow_the_width_of_a_run(toy_run: Maker, tmp_path: Path) -> None:
    """At the width of the base, nothing changes; a wider model resumes with the same bits."""
    params = {"d_model": 16, "heads": 2, "d_ff": 24, "layers": 1}

    def train(name: str, width: int | None, updates: int = 6) -> dict[str, torch.Tensor]:
        mup = {"mup": {"base": {**params, "d_model": width, "heads": 1}}} if width else None
        run = toy_run(
            "transformer-untied",
            {**params, "heads": 16 // (width or 16)},
            parametrization=mup,
            updates=updates,
            checkpoint={"every": 3, "keep": 2, "average": 0},
        )
        folder = tmp_path / name
        api.train(run, out=folder, resume=folder.exists())
        return tensors_in(folder / f"checkpoints/{updates:06d}", "weights")

    plain, same = train("plain", None), train("same", 16)
    wide, _, again = train("wide", 8), train("halves", 8, 3), train("halves", 8)

    assert all(plain[key].equal(same[key]) for key in plain)
    assert all(wide[key].equal(again[key]) for key in wide)
    assert not all(plain[key].equal(wide[key]) for key in plain)


class Stopper(api.Silent):
    """Stops a training after an update."""

    def __init__(self, after: int) -> None:
        """Store the number of the update."""
        self.after = after

    def validated(self, update: int, values: Any) -> None:
        """Send the signal of a user."""
        del values
        if update == self.after:
            import signal  # noqa: PLC0415

            signal.raise_signal(signal.SIGINT)
