"""The parallel pass: which blocks it partitions over processes, and which layers it shards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn
from weft.graphs.ir.graph import Graph
from weft.graphs.passes.parallel import divided_blocks, maps_of, parallelize
from weft.runtime.codegen.build import build
from weft.runtime.spec.check import graph_of
from weft.specs.findings import InputError
from weft.specs.load import load, loaded
from weft.specs.reader import shipped_names

from ...runtime.train.objective.conftest import READ, pairs_objective


def graph(name: str, **params: Any) -> Graph:
    """Return the checked graph of a shipped spec."""
    return graph_of(load(name, params))


def test_heads_and_middles_are_divided_by_columns_then_rows() -> None:
    """An encoder layer has six partitioned maps, a decoder layer ten."""
    maps = maps_of(divided_blocks(graph("transformer-base", layers=1), 4).blocks)

    assert maps == {
        "encoder.0.self_attention.f.query": "columns",
        "encoder.0.self_attention.f.key": "columns",
        "encoder.0.self_attention.f.value": "columns",
        "encoder.0.self_attention.f.out": "rows",
        "encoder.0.feed_forward.f.inner": "columns",
        "encoder.0.feed_forward.f.outer": "rows",
        **{
            f"decoder.0.{which}_attention.f.{name}": "rows" if name == "out" else "columns"
            for which in ("self", "cross")
            for name in ("query", "key", "value", "out")
        },
        "decoder.0.feed_forward.f.inner": "columns",
        "decoder.0.feed_forward.f.outer": "rows",
    }


def test_indivisible_blocks_are_not_partitioned_with_a_reason() -> None:
    """Neither 8 heads nor a d_ff of 2,048 divide by 3."""
    made = divided_blocks(graph("transformer-base", layers=1), 3)

    assert made.blocks == {}
    assert made.undivided["encoder.0.self_attention.f"] == "8 heads do not divide evenly among 3"
    assert made.undivided["decoder.0.feed_forward.f"] == "2048 d_ff do not divide evenly among 3"


def test_fewer_key_value_heads_than_processes_are_not_partitioned() -> None:
    """Two key-value heads can be shared by two processes, not by four."""
    grouped = graph("transformer-gqa", layers=1)
    two, four = divided_blocks(grouped, 2), divided_blocks(grouped, 4)

    attentions = [path for path in two.blocks if "attention" in path]
    assert attentions
    assert [path for path in four.undivided if "attention" in path]


def test_heads_with_own_parameters_are_not_partitioned() -> None:
    """A block with a learned gate or bias per head is not partitioned."""
    blocks = divided_blocks(graph("transformer-headgates", layers=1), 2).blocks

    assert blocks
    assert all("feed_forward" in path for path in blocks)


def test_the_model_inside_an_objective_is_partitioned() -> None:
    """The plan of an objective is that of its model, below the node of the model."""
    alone = divided_blocks(graph("transformer-base"), 4)
    objective = divided_blocks(graph(str(shipped_names("objectives")["translation"])), 4)

    assert alone.blocks
    assert maps_of(objective.blocks) == {
        f"model.{path}": way for path, way in maps_of(alone.blocks).items()
    }


def test_a_block_tied_to_another_model_of_an_objective_is_not_partitioned() -> None:
    """The first feed-forward layer of two models share a weight; the second ones do not."""
    small = {"spec": "transformer-tiny", "params": {"d_model": 16, "heads": 2, "d_ff": 32}}
    spec = pairs_objective(
        {
            "other": {"use": "=other", "in": READ},
            "imitation": {
                "use": "kl_divergence@1",
                "in": {"logits": "model.logits", "target": "other.logits", "mask": "target_mask.y"},
            },
        },
        {"loss": "cross_entropy.loss", "imitation": "imitation.loss"},
        params={"model": small, "other": small, "source_vocab": 40, "vocab": 40},
        tie=[[f"{n}.encoder.0.feed_forward.f.inner.weight" for n in ("model", "other")]],
    )

    made = divided_blocks(graph_of(loaded(spec)), 2)

    assert made.undivided == {
        f"{name}.encoder.0.feed_forward.f": "a weight is tied" for name in ("model", "other")
    }
    inside = {path.partition(".")[2] for path in made.blocks if path.startswith("other.")}
    assert {"encoder.0.self_attention.f", "encoder.1.feed_forward.f"} < inside


def divided_by_hand(
    block: nn.Module, division: Any, processes: int, inputs: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    """Return the sum of the outputs of partitions of a block, each with its rows and columns."""
    total = torch.zeros(())
    whole = {name: p.detach().clone() for name, p in block.named_parameters()}
    kept = {name: getattr(block, name) for name in division.counted}
    for rank in range(processes):
        for name in (*division.enter, *division.leave):
            linear = block.get_submodule(name)
            axis = 0 if name in division.enter else 1
            weight = whole[f"{name}.weight"].chunk(processes, axis)[rank]
            linear.weight = nn.Parameter(weight)
            if f"{name}.bias" in whole:
                bias = whole[f"{name}.bias"]
                part = bias.chunk(processes)[rank] if axis == 0 else bias * float(rank == 0)
                linear.bias = nn.Parameter(part)
        for name, count in kept.items():
            setattr(block, name, count // processes)
        total = total + block(**inputs)
    return total


@pytest.mark.parametrize(
    "use",
    [
        {"use": "attention@1", "params": {"heads": 4}},
        {
            "use": "attention@1",
            "params": {"heads": 4, "causal": True},
            "fill": {
                "position": {"use": "rotary@1"},
                "mask": {"use": "window@1", "params": {"distance": 2}},
            },
        },
        {"use": "attention@1", "params": {"heads": 4, "kv_heads": 2}},
        {"use": "feed_forward@1", "params": {"d_ff": 12}},
        {"use": "gated_feed_forward@1", "params": {"d_ff": 12, "bias": False}},
    ],
    ids=lambda use: f"{use['use']} {sorted(use['params'])[-1]}",
)
def test_parts_of_a_block_add_up_to_the_block(use: dict[str, Any]) -> None:
    """Slicing the module by hand agrees with its contract."""
    spec = {
        "format": 1,
        "name": "one",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]"},
        "outputs": {"y": "block.y"},
        "nodes": {"block": {**use, "in": {"x": "x"}}},
    }
    checked = graph_of(loaded(spec))
    made = divided_blocks(checked, 2)
    model = build(checked)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.uniform_(parameter, generator=torch.Generator().manual_seed(1))
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(2))
    expected = model(x=x)["y"]

    block = model.get_submodule("block")
    found = divided_by_hand(block, made.blocks["block"], 2, {"x": x})

    torch.testing.assert_close(found, expected)
    assert float(found.detach().abs().max()) > 0.01


@pytest.mark.parametrize(
    ("data", "tensor", "processes", "expected"),
    [
        ("auto", 1, 2, ("ddp", 0, 0)),
        ("fsdp", 1, 2, ("fsdp", 12, 0)),
        ("auto", 4, 8, ("fsdp", 12, 30)),
        ("auto", 4, 4, (None, 0, 30)),
    ],
)
def test_the_plan_of_a_training(
    data: Any, tensor: int, processes: int, expected: tuple[str | None, int, int]
) -> None:
    """6 + 6 layers have 18 attentions and 12 feed-forward blocks; one process needs no plan."""
    made = graph(str(shipped_names("objectives")["translation"]))

    plan = parallelize(made, data=data, tensor=tensor, processes=processes).execution.parallel
    alone = parallelize(made, data=data, tensor=tensor, processes=1)

    assert plan is not None
    assert (plan.data, len(plan.sharded), len(plan.blocks)) == expected
    assert alone is made
    assert set(plan.sharded) <= {
        f"model.{side}.{n}" for side in ("encoder", "decoder") for n in range(6)
    }


def test_layers_that_share_a_weight_with_others_are_not_sharded_separately() -> None:
    """The tied matrix of a layer belongs to what is sharded together; shared copies are one."""
    tied = {
        "format": 1,
        "name": "tied",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 6]"},
        "outputs": {"y": "last.y"},
        "blocks": {
            "layer": {
                "inputs": {"x": "f[B T 6]"},
                "outputs": {"x": "map.y"},
                "nodes": {"map": {"use": "linear@1", "params": {"d_out": 6}, "in": {"x": "x"}}},
            }
        },
        "nodes": {
            "each": {"repeat": 3, "block": "layer", "in": {"x": "x"}, "carry": ["x"]},
            "last": {"use": "linear@1", "params": {"d_out": 6}, "in": {"x": "each.x"}},
        },
        "tie": [["each.1.map.weight", "last.weight"]],
    }

    plan = parallelize(graph_of(loaded(tied)), data="fsdp", tensor=1, processes=2)
    shared = parallelize(graph("universal-transformer"), data="fsdp", tensor=1, processes=2)

    assert plan.execution.parallel is not None
    assert plan.execution.parallel.sharded == ("each.0", "each.2")
    assert shared.execution.parallel is not None
    assert shared.execution.parallel.sharded == ("encoder", "decoder")


def test_impossible_plans_are_refused() -> None:
    """Weights that are partitioned are not whole on every process, and 8 heads are not 3."""
    made = graph("transformer-base")
    with pytest.raises(InputError, match="ddp needs all weights"):
        parallelize(made, data="ddp", tensor=2, processes=4)
    with pytest.raises(InputError, match="do not divide evenly among 3"):
        parallelize(made, data="auto", tensor=3, processes=6)
