"""The pipeline of passes: their order, what they tell, and that they leave the graph as it was."""

from __future__ import annotations

from dataclasses import replace

import pytest
from weft.graphs.ir.execution import PLAIN, WeightCasts
from weft.graphs.ir.graph import Graph
from weft.graphs.passes.pipeline import NAMES, Settings, after, pipeline
from weft.runtime.spec.check import graph_of
from weft.specs.findings import InputError
from weft.specs.load import load
from weft.specs.reader import shipped_names


def objective(name: str) -> Graph:
    """Return the graph of a shipped objective."""
    return graph_of(load(str(shipped_names("objectives")[name])))


def test_passes_run_in_order_and_tell_what_they_change() -> None:
    """Translation is unpadded in its model, and its loss computes the head."""
    graph = objective("translation")
    selected = Settings(activation_checkpointing=("model.encoder.0-1",))

    steps = pipeline(graph, selected)

    assert tuple(step.name for step in steps) == NAMES["train"]
    assert [step.changed for step in steps] == [
        (),
        ("S and T of model; padded for source_position, target_position",),
        ("cross_entropy computes model.head",),
        ("2 modules, from model.encoder.0",),
        (),
        (),
        (),
    ]
    assert graph.execution == PLAIN
    last = steps[-1].graph.execution
    assert last.models["model"].checkpointed == {"encoder.0", "encoder.1"}
    assert last.models["model"].deferred == ("head",)


def test_a_pass_can_be_left_out_and_the_pipeline_stopped() -> None:
    """The others do what they did."""
    graph = objective("translation")
    whole = after(graph, Settings()).execution

    without = after(graph, Settings(without=("fuse",))).execution
    first = after(graph, Settings(), "unpad").execution

    assert (without.fused, without.models["model"].deferred) == ({}, ())
    assert without.models["model"].unpad == whole.models["model"].unpad
    assert first == without
    assert after(graph, Settings(unpad=False, without=("fuse",))).execution == PLAIN


def test_a_model_that_must_be_unpadded_but_cannot_be_is_an_error() -> None:
    """By default it stays padded."""
    graph = graph_of(load("vit"))

    assert after(graph, Settings()).execution == PLAIN
    with pytest.raises(InputError, match="cannot be unpadded"):
        after(graph, Settings(strict=True))


@pytest.mark.integration
def test_graphs_of_every_kind_pass_through() -> None:
    """Every shipped objective, whether a pass changes it or not."""
    for name in shipped_names("objectives"):
        graph = objective(name)
        last = pipeline(graph, Settings())[-1].graph
        assert (last.root, last.outputs) == (graph.root, graph.outputs), name


def test_weights_are_cast_in_the_precision_of_the_settings_by_copies_or_by_fsdp() -> None:
    """In float32 nothing is cast; FSDP makes its own copies, DDP does not."""
    graph = objective("translation")
    half = Settings(precision="float16", processes=2)

    assert after(graph, Settings()).execution.casts is None
    assert after(graph, half).execution.casts == WeightCasts("float16", "copies")
    sharded = pipeline(graph, replace(half, data="fsdp"))[-1]
    assert sharded.graph.execution.casts == WeightCasts("float16", "fsdp")
    assert sharded.changed == ("fsdp gathers weights in float16, and sums gradients in float32",)
