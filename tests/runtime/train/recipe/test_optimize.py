"""Optimizers and the rates of groups of weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from weft.runtime import api
from weft.runtime.checkpoint.checkpoint import tensors_in
from weft.runtime.codegen.build import build
from weft.runtime.spec.check import graph_of
from weft.runtime.train.recipe.groups import WeightGroup, weight_groups, wrong_groups
from weft.runtime.train.recipe.optimize import (
    Optimizers,
    averaged_weights,
    clip_gradient,
    load_optimizer_tensors,
    make_optimizer,
    optimizer_tensors,
    set_rates,
)
from weft.runtime.train.recipe.optimizers import OPTIMIZERS, Adam, AdamW, Muon
from weft.runtime.train.run import Run
from weft.specs.findings import InputError
from weft.specs.load import load

if TYPE_CHECKING:
    from collections.abc import Mapping


def optimizer_of(
    model: nn.Module, settings: Mapping[str, Any] | None = None, ema: float | None = None
) -> Optimizers:
    """Return an optimizer whose highest rate is 1, beside AdamW for what it does not update."""
    parsed = OPTIMIZERS.validate({"type": "adam", **(settings or {})})
    takes = {n: parsed.takes(tuple(p.shape)) for n, p in model.named_parameters()}
    groups = [WeightGroup(parsed, tuple(n for n in takes if takes[n]))]
    groups += [WeightGroup(AdamW(), tuple(n for n in takes if not takes[n]))]
    return make_optimizer(model, groups, 1.0, ema)


def set_rate(optimizer: Optimizers, rate: float) -> None:
    """Set the rate of all weights."""
    set_rates(optimizer, rate, 1, 1)


class Tied(nn.Module):
    """A model with tied embeddings and one weight without a gradient."""

    def __init__(self) -> None:
        """Draw the weights from a fixed seed."""
        super().__init__()
        torch.manual_seed(1)
        self.table = nn.Embedding(7, 4)
        self.norm = nn.LayerNorm(4)
        self.out = nn.Linear(4, 7, bias=False)
        self.out.weight = self.table.weight
        self.idle = nn.Parameter(torch.ones(2, 2))

    def forward(self, ids: Tensor) -> Tensor:
        """Return one score per token."""
        scores: Tensor = self.out(self.norm(self.table(ids)))
        return scores


def advance(model: nn.Module, optimizer: Optimizers, updates: range) -> None:
    """Train on batches that are determined by the number of the update."""
    for update in updates:
        ids = torch.randint(0, 7, (5,), generator=torch.Generator().manual_seed(update))
        optimizer.zero_grad(set_to_none=True)
        model(ids).square().sum().backward()
        set_rate(optimizer, 0.01 / (1 + update))
        optimizer.step()


KINDS: dict[str, dict[str, Any]] = {
    "adam": {"type": "adam"},
    "adamw": {"type": "adamw"},
    "adafactor": {"type": "adafactor"},
    "muon": {"type": "muon"},
    "muon without momentum": {"type": "muon", "momentum": 0.0},
    "sgd": {"type": "sgd"},
    "sgd without momentum": {"type": "sgd", "momentum": 0.0},
}


@pytest.mark.parametrize("ema", [None, 0.9])
@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_optimizer_is_bit_identical(tmp_path: Path, kind: str, ema: float | None) -> None:
    """Five updates, saving, loading into new objects and five more updates equal ten updates."""
    settings = {**KINDS[kind], "weight_decay": 0.1}
    whole, first, second = Tied(), Tied(), Tied()
    never_stopped = optimizer_of(whole, settings, ema)
    advance(whole, never_stopped, range(10))

    before = optimizer_of(first, settings, ema)
    advance(first, before, range(5))
    save_file(optimizer_tensors(before, first), tmp_path / "optimizer.safetensors")
    second.load_state_dict(first.state_dict())
    after = optimizer_of(second, settings, ema)
    load_optimizer_tensors(after, second, load_file(tmp_path / "optimizer.safetensors"))
    advance(second, after, range(5, 10))

    for (name, wanted), got in zip(whole.named_parameters(), second.parameters(), strict=True):
        assert torch.equal(wanted, got), name
    wanted_state, got_state = (
        optimizer_tensors(never_stopped, whole),
        optimizer_tensors(after, second),
    )
    assert wanted_state.keys() == got_state.keys()
    assert all(torch.equal(wanted_state[key], got_state[key]) for key in wanted_state)


def test_two_optimizers_update_their_own_weights() -> None:
    """Muon has a running sum of the gradients of its matrix, Adam two means of the others."""
    model = nn.ModuleDict({"words": nn.Embedding(33, 4), "map": nn.Linear(4, 6)})
    groups = [
        WeightGroup(AdamW(), ("words.weight", "map.bias")),
        WeightGroup(Muon(), ("map.weight",)),
    ]
    optimizer = make_optimizer(model, groups, 1.0)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)

    set_rate(optimizer, 0.1)
    optimizer.step()

    parts = {key.rpartition(".")[0::2] for key in optimizer_tensors(optimizer, model)}
    assert {name for name, part in parts if part == "momentum_buffer"} == {"map.weight"}
    assert {name for name, part in parts if part == "exp_avg"} == {"words.weight", "map.bias"}


def test_a_step_of_muon_turns_all_directions_alike() -> None:
    """Without momentum the update of a matrix is nearly orthogonal at any gradient scale."""
    model = nn.Linear(3, 3, bias=False)
    start = model.weight.detach().clone()
    model.weight.grad = torch.diag(torch.tensor([9.0, 1.0, 0.5]))
    optimizer = optimizer_of(model, {"type": "muon", "momentum": 0.0})

    set_rate(optimizer, 0.1)
    optimizer.step()

    sizes = torch.linalg.svdvals(start - model.weight.detach())
    assert sizes.min() > 0.5 * sizes.max() > 0


def test_one_update_of_sgd_by_hand() -> None:
    """The second update is its gradient plus 0.9 times the first."""
    model = nn.Linear(2, 1, bias=False)
    start = model.weight.detach().clone()
    optimizer = optimizer_of(model, {"type": "sgd"})
    for _ in range(2):
        model.weight.grad = torch.tensor([[1.0, -2.0]])
        set_rate(optimizer, 0.5)
        optimizer.step()

    torch.testing.assert_close(model.weight, start - 0.5 * 2.9 * torch.tensor([[1.0, -2.0]]))


def test_state_of_another_optimizer_is_refused() -> None:
    """State of another optimizer is an error."""
    model = Tied()
    adam = optimizer_of(model)
    advance(model, adam, range(1))
    sgd = optimizer_of(model, {"type": "sgd"})

    with pytest.raises(InputError, match="belongs to no parameter"):
        load_optimizer_tensors(sgd, model, optimizer_tensors(adam, model))


def test_state_is_named_by_parameter_and_shared_ones_stand_once() -> None:
    """The keys are the file format; a parameter that never had a gradient has no state."""
    model = Tied()
    optimizer = optimizer_of(model)

    advance(model, optimizer, range(1))

    assert sorted(optimizer_tensors(optimizer, model)) == [
        f"{name}.{part}"
        for name in ("norm.bias", "norm.weight", "table.weight")
        for part in ("exp_avg", "exp_avg_sq", "step")
    ]


def test_loading_copies() -> None:
    """Loaded tensors are copied: training does not change the given ones."""
    model = Tied()
    optimizer = optimizer_of(model)
    advance(model, optimizer, range(1))
    tensors = {key: tensor.clone() for key, tensor in optimizer_tensors(optimizer, model).items()}
    kept = {key: tensor.clone() for key, tensor in tensors.items()}

    load_optimizer_tensors(optimizer, model, tensors)
    advance(model, optimizer, range(1, 3))

    assert all(torch.equal(tensors[key], kept[key]) for key in kept)


def test_loading_replaces_the_complete_state() -> None:
    """The state before the first update is empty, and loading it leaves it empty."""
    model = Tied()
    optimizer = optimizer_of(model)
    advance(model, optimizer, range(1))

    load_optimizer_tensors(optimizer, model, {})

    assert optimizer_tensors(optimizer, model) == {}


def test_one_update_of_adam_by_hand() -> None:
    """After one gradient g the corrected means are g and g^2: the update is rate * sign(g)."""
    model = nn.Linear(2, 1, bias=False)
    start = model.weight.detach().clone()
    model.weight.grad = torch.tensor([[3.0, -0.5]])
    optimizer = optimizer_of(model)

    set_rate(optimizer, 0.125)
    optimizer.step()

    torch.testing.assert_close(model.weight, start - 0.125 * torch.tensor([[1.0, -1.0]]))


def test_the_defaults_are_those_of_the_paper() -> None:
    """The defaults are betas 0.9 and 0.98, epsilon 1e-9, no decay, no clipping."""
    assert Adam() == Adam(type="adam", betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0, clip=None)


def test_a_new_optimizer_uses_its_settings_and_one_kernel() -> None:
    """Optimizers use fused updates where available, which are four times as fast on a CPU."""
    optimizer = optimizer_of(Tied(), {"betas": (0.5, 0.6), "eps": 1e-3})

    assert all(group["fused"] for group in optimizer.param_groups)
    assert all(group["betas"] == (0.5, 0.6) for group in optimizer.param_groups)
    assert all(group["eps"] == 1e-3 for group in optimizer.param_groups)


def test_decay_pulls_matrices_and_leaves_vectors() -> None:
    """Without a gradient a matrix shrinks by rate * decay; norms and biases do not."""
    model = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
    start = [p.detach().clone() for p in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer = optimizer_of(model, {"type": "adamw", "weight_decay": 0.5})

    set_rate(optimizer, 0.1)
    optimizer.step()

    for before, after in zip(start, model.parameters(), strict=True):
        torch.testing.assert_close(after, before * 0.95 if before.dim() > 1 else before)


def test_frozen_parameters_are_left_out() -> None:
    """Parameters that do not require gradients are not in the optimizer."""
    model = nn.Linear(2, 2)
    model.weight.requires_grad_(requires_grad=False)

    optimizer = optimizer_of(model)

    assert [group["params"] for group in optimizer.param_groups] == [[model.bias]]


def test_a_model_that_learns_nothing_is_refused() -> None:
    """A model without trainable parameters is an error."""
    with pytest.raises(InputError, match="nothing to optimize"):
        optimizer_of(nn.ReLU())


@pytest.mark.parametrize(("clip", "scale"), [(None, 1.0), (6.5, 0.5), (20.0, 1.0)])
def test_clipping_scales_all_gradients_alike(clip: float | None, scale: float) -> None:
    """3, 4 and 12 have the norm 13 in any distribution over tensors; None only measures."""
    first, second, idle = (nn.Parameter(torch.zeros(n)) for n in (2, 1, 1))
    first.grad, second.grad = torch.tensor([3.0, 4.0]), torch.tensor([12.0])

    norm = clip_gradient(iter([first, second, idle]), clip)

    assert norm.item() == pytest.approx(13.0)
    torch.testing.assert_close(first.grad, scale * torch.tensor([3.0, 4.0]), rtol=1e-5, atol=0)
    torch.testing.assert_close(second.grad, scale * torch.tensor([12.0]), rtol=1e-5, atol=0)


def test_a_nonfinite_gradient_gives_a_nonfinite_norm() -> None:
    """The caller checks one scalar instead of every gradient."""
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([1.0, torch.nan])

    assert not clip_gradient([parameter], None).isfinite()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"other.weight.exp_avg": torch.zeros(1)}, "'other.weight.exp_avg' belongs to no"),
        ({"norm.weight.momentum": torch.zeros(4)}, "'norm.weight.momentum' belongs to no"),
        ({"norm.weight.exp_avg": torch.zeros(5)}, r"'norm.weight.exp_avg' has shape \(5,\), exp"),
        ({"norm.weight.exp_avg": None}, "'norm.weight.exp_avg' is missing"),
    ],
)
def test_state_of_another_model_is_named_and_changes_nothing(
    change: dict[str, Tensor | None], message: str
) -> None:
    """A renamed, reshaped or missing tensor is an error, not a silent reset of one weight."""
    model = Tied()
    optimizer = optimizer_of(model)
    advance(model, optimizer, range(2))
    kept = {key: tensor.clone() for key, tensor in optimizer_tensors(optimizer, model).items()}
    given = {key: tensor for key, tensor in {**kept, **change}.items() if tensor is not None}

    with pytest.raises(InputError, match=message):
        load_optimizer_tensors(optimizer, model, given)

    assert all(
        torch.equal(kept[key], tensor)
        for key, tensor in optimizer_tensors(optimizer, model).items()
    )


@pytest.mark.parametrize(
    "wrong", [{"betas": (0.9, 1.0)}, {"clip": 0}, {"eps": 0}, {"lr": 0.1}, {"type": "lion"}]
)
def test_settings_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    """The learning rate belongs to the schedule, so it is not a key of the optimizer."""
    with pytest.raises(ValidationError):
        Adam.model_validate(wrong)


@pytest.mark.parametrize("kind", ["adam", "muon", "sgd"])
def test_a_moving_average_follows_its_definition(kind: str) -> None:
    """a_1 = w_1 and a_t = d a_(t-1) + (1 - d) w_t; tied weights share it, idle ones have none."""
    model, decay = Tied(), 0.75
    optimizer = optimizer_of(model, {"type": kind}, decay)
    wanted: dict[str, Tensor] = {}
    for update in range(4):
        advance(model, optimizer, range(update, update + 1))
        for name, weight in model.named_parameters():
            now = weight.detach().double()
            wanted[name] = now if update == 0 else decay * wanted[name] + (1 - decay) * now

    state = optimizer_tensors(optimizer, model)
    other = {"out.weight": torch.zeros(()), "fixed": torch.ones(())}
    found = averaged_weights(other, state, [("out.weight", "table.weight")])

    assert {name for name in wanted if f"{name}.ema" not in state} == {"idle"}
    del wanted["idle"]
    for name, weight in wanted.items():
        torch.testing.assert_close(state[f"{name}.ema"].double(), weight, rtol=1e-6, atol=1e-7)
    assert torch.equal(found["out.weight"], state["table.weight.ema"])
    assert torch.equal(found["fixed"], torch.ones(()))


def test_a_moving_average_follows_a_weight_that_an_update_leaves_out() -> None:
    """By hand: the weight stays where it is, and its average comes half-way nearer."""
    model = Tied()
    optimizer = optimizer_of(model, {"type": "sgd"}, 0.5)
    advance(model, optimizer, range(2))
    before = optimizer_tensors(optimizer, model)["norm.weight.ema"].clone()
    weight = model.norm.weight.detach().clone()

    optimizer.zero_grad(set_to_none=True)
    model.table(torch.tensor([1])).sum().backward()
    optimizer.step()

    assert not torch.equal(before, weight)
    assert torch.equal(model.norm.weight, weight)
    found = optimizer_tensors(optimizer, model)["norm.weight.ema"]
    torch.testing.assert_close(found, (before + weight) / 2)


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
