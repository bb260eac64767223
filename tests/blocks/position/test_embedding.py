"""Embedding: a frozen table does not change in training, including tied weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.graph import Graph
from weft.runtime.codegen.build import build
from weft.runtime.train.recipe.groups import WeightGroup
from weft.runtime.train.recipe.optimize import (
    Optimizers,
    clip_gradient,
    load_optimizer_tensors,
    make_optimizer,
    optimizer_tensors,
    set_rates,
)
from weft.runtime.train.recipe.optimizers import AdamW
from weft.specs.load import loaded


def graph(*, frozen: bool, tie: list[str] | None = None) -> Graph:
    """Return a spec from words to scores: two tables, the first optionally frozen, and a map."""
    table = {"use": "embedding@1", "in": {"ids": "words"}}
    spec: dict[str, Any] = {
        "format": 1,
        "name": "words",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"words": "ids:7[B T]"},
        "outputs": {"frozen": "head.y", "free": "other.y"},
        "nodes": {
            "table": {**table, "params": {"d_model": 4, "frozen": frozen}},
            "free": {**table, "params": {"d_model": 4}},
            "norm": {"use": "layer_norm@1", "in": {"x": "table.y"}},
            "head": {"use": "linear@1", "in": {"x": "norm.y"}, "params": {"d_out": 7}},
            "other": {"use": "linear@1", "in": {"x": "free.y"}, "params": {"d_out": 7}},
        },
        "tie": [tie] if tie else [],
    }
    return check(loaded(spec).form, registry())


def optimizer_of(model: nn.Module) -> Optimizers:
    """Return an optimizer of all weights, with weight decay."""
    names = tuple(name for name, _ in model.named_parameters())
    return make_optimizer(model, [WeightGroup(AdamW(weight_decay=0.1), names)], 1.0)


def trained(model: nn.Module, updates: int = 3) -> Optimizers:
    """Train on random words with weight decay and clipping, and return the optimizer."""
    optimizer = optimizer_of(model)
    set_rates(optimizer, 0.1, 1, 1)
    for _ in range(updates):
        outputs: dict[str, Tensor] = model(words=torch.randint(7, (3, 5)))
        sum(y.square().sum() for y in outputs.values()).backward()
        clip_gradient(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return optimizer


@pytest.mark.parametrize(
    ("tie", "still"),
    [
        (None, {"table.weight"}),
        (["table.weight", "head.weight"], {"table.weight", "head.weight"}),
        (["head.weight", "table.weight"], {"table.weight", "head.weight"}),
        (
            ["free.weight", "head.weight", "table.weight"],
            {"table.weight", "head.weight", "free.weight"},
        ),
    ],
    ids=["alone", "tied, first", "tied, second", "tied, last"],
)
def test_a_frozen_table_stays_and_the_rest_moves(tie: list[str] | None, still: set[str]) -> None:
    """Bit for bit, with weight decay and clipping, whichever owner of a tied table is frozen."""
    model = build(graph(frozen=True, tie=tie))
    before = {name: weight.clone() for name, weight in model.state_dict().items()}

    trained(model)

    after = model.state_dict()
    assert {name for name in before if torch.equal(before[name], after[name])} == still


def test_a_table_that_is_not_frozen_moves() -> None:
    """Otherwise the test above could not fail."""
    model = build(graph(frozen=False))
    before = model.state_dict()["table.weight"].clone()

    trained(model)

    assert not torch.equal(before, model.state_dict()["table.weight"])


def test_freezing_changes_neither_counts_nor_initial_values() -> None:
    """The parameters are equal in number and value; only training differs."""
    frozen, free = graph(frozen=True), graph(frozen=False)

    assert frozen.parameters() == free.parameters() == 28 + 28 + 8 + 35 + 35
    left, right = build(frozen).state_dict(), build(free).state_dict()
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_the_optimizer_has_no_state_for_a_frozen_table() -> None:
    """Its state can be saved and loaded, and has no moments for frozen weights."""
    model = build(graph(frozen=True))
    optimizer = trained(model)

    written = optimizer_tensors(optimizer, model)
    again = optimizer_of(model)
    load_optimizer_tensors(again, model, written)

    assert {name.rpartition(".")[0] for name in written} == set(model.state_dict()) - {
        "table.weight"
    }
    assert optimizer_tensors(again, model).keys() == written.keys()
