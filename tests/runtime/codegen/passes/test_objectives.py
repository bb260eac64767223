"""Each pass of training, alone and with the others, leaves every shipped objective as it was."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import weft
from torch import Tensor
from weft.blocks.kernels import attention as blocks
from weft.blocks.kernels import linear as product
from weft.graphs.ir.execution import KernelChoice
from weft.graphs.ir.graph import Graph, RepeatNode
from weft.graphs.passes.pipeline import NAMES, PassName, PassSettings, after, pipeline
from weft.runtime.data.plans.planning import DataPosition
from weft.runtime.data.table import Batch
from weft.runtime.spec.check import graph_of
from weft.runtime.train.distributed.sampler import MicroBatches
from weft.runtime.train.distributed.world import World
from weft.runtime.train.losses import ObjectiveLosses
from weft.specs.load import load
from weft.specs.reader import shipped_names

from ...entries import ENTRIES
from .test_specs import assert_equal_but_for, tied
from .test_unpad import models_of

pytestmark = pytest.mark.integration
OWN = ("labels", "tags", "leaves", "nodes", "max_length", "vocab", "source_vocab", "target_vocab")
"""Params of models that an objective, its vocabulary or another model sets."""
ALIKE = {"d_model": 16, "heads": 2, "d_embedding": 16, "d_memory": 16}
"""Params that models of one objective must have in common."""
IMAGE = {"channels": 3, "height": 8, "width": 12}
CHANGING: tuple[PassName, ...] = ("unpad", "fuse", "checkpoint")
"""The passes that change what a training on one process computes, in any precision."""
ROWS, LENGTH, SHORTEST = 3, 9, 6
SEPARATOR = 4


@functools.cache
def small(name: str) -> Graph:
    """Return the graph of a shipped objective, with small models."""
    path = str(shipped_names("objectives")[name])
    params = load(path).form.params
    given: dict[str, Any] = {key: size for key, size in IMAGE.items() if key in params}
    for key, value in params.items():
        if isinstance(value, dict) and "spec" in value:
            sizes = {k: v for k, v in ENTRIES[value["spec"]]["small"].items() if k not in OWN}
            known = load(value["spec"]).form.params
            sizes |= {k: v for k, v in ALIKE.items() if k in known}
            given[key] = {**value, "params": {**sizes, **value.get("params", {})}}
    if name == "sequence-parsing":  # its model has a small vocabulary of trees
        given["vocab"] = 128
    return graph_of(load(path, given))


def batch_of(graph: Graph) -> Batch:
    """Return a batch whose last rows end in padding, with the counts that the data know."""
    sizes = {a: ROWS if kind == "batch" else LENGTH for a, kind in graph.spec.axes.items()}
    inputs = weft.example_inputs(graph, sizes, seed=2)
    is_padding = torch.arange(LENGTH) >= torch.tensor([[LENGTH], [SHORTEST], [SHORTEST]])
    for name, value in inputs.items():
        type_ = graph.inputs[name]
        over_time = value.shape[:2] == is_padding.shape
        if type_.kind == "ids" and over_time and value.dim() == is_padding.dim():
            inputs[name] = value.clamp(min=SEPARATOR + 1).masked_fill(is_padding, 0)
            inputs[name][:, 2] = SEPARATOR
        elif type_.kind == "label" and over_time:
            inputs[name] = value.masked_fill(is_padding, -1)
        elif type_.kind == "mask" and over_time:
            shape = (*is_padding.shape, *[1] * (value.dim() - is_padding.dim()))
            inputs[name] = value.index_fill(-1, torch.tensor(0), True) & ~is_padding.view(shape)
            if value.dim() == is_padding.dim():
                inputs[name] = ~is_padding
        elif type_.kind in ("pos", "len"):
            inputs[name] = value.clamp(max=SHORTEST - 1)
        elif value.is_floating_point():
            inputs[name] = value.double()
    ids = {name: value for name, value in inputs.items() if graph.inputs[name].kind == "ids"}
    tokens = {name: int((value != 0).sum()) for name, value in ids.items()}
    shifted = {
        name: int(((value != 0).sum(1) + 1).clamp(max=LENGTH).sum())
        for name, value in ids.items()
        if value.dim() == is_padding.dim()
    }
    return Batch(inputs, np.arange(ROWS), tokens, shifted)


def layers_of(graph: Graph) -> tuple[str, ...]:
    """Return selections of the layers in the first repeat of each model."""
    found = []
    for node, model in graph.models():
        repeats = [one.name for one in model.root.nodes if isinstance(one, RepeatNode)]
        found += [f"{node.name}.{name}.*" for name in repeats[:1] if not node.frozen]
    return tuple(found)


def learnt(
    graph: Graph, plain: Graph, dtype: torch.dtype = torch.float64, *, autocast: bool = False
) -> tuple[float, dict[str, Tensor]]:
    """Return the loss and the gradients of a graph, with the weights of all."""
    [model] = models_of(graph)
    model.to(dtype)
    losses, batch = ObjectiveLosses(plain, 0.01), batch_of(plain)
    for name, value in batch.inputs.items():
        batch.inputs[name] = value.to(dtype) if value.is_floating_point() else value
    update = MicroBatches(DataPosition(), ((0, batch),), 1, {})
    losses.total(model, update, World(), (1, 1), torch.device("cpu"))
    torch.manual_seed(7)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = losses.loss(model, batch).loss
    loss.backward()
    return loss.item(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


@functools.cache
def expected(name: str) -> tuple[float, dict[str, Tensor]]:
    """Return the loss and the gradients of an objective without any pass."""
    return learnt(small(name), small(name))


@functools.cache
def with_kernels(name: str, kernels: tuple[str, str]) -> tuple[float, dict[str, Tensor]]:
    """Return the loss and the gradients in float32, with kernels of products and attention."""
    chosen = replace(
        settings(small(name), "kernels"), kernels=KernelChoice(kernels[0], {"*": kernels[1]})
    )
    return learnt(after(small(name), chosen), small(name), torch.float32)


def settings(graph: Graph, *passes: PassName) -> PassSettings:
    """Return settings under which only the named passes run."""
    without = tuple(name for name in NAMES["train"] if name not in passes)
    return PassSettings(activation_checkpointing=layers_of(graph), without=without)


@pytest.mark.parametrize(
    "passes",
    [CHANGING, *(pytest.param((name,), marks=pytest.mark.slow) for name in CHANGING)],
    ids="+".join,
)
@pytest.mark.parametrize("name", shipped_names("objectives"))
def test_losses_and_gradients_stay_the_same(name: str, passes: tuple[PassName, ...]) -> None:
    """On padded rows, without dropout; fused losses are computed in float32."""
    graph = small(name)
    steps = pipeline(graph, settings(graph, *passes))
    changed = {step.name for step in steps if step.changed}
    if not changed:
        pytest.skip("the passes leave this objective as it is")

    loss, gradients = learnt(steps[-1].graph, graph)

    wanted, others = expected(name)
    assert loss == pytest.approx(wanted, rel=1e-6)
    assert gradients.keys() == others.keys()
    assert len(gradients) > 2
    largest = max(float(one.abs().max()) for one in others.values())
    torch.testing.assert_close(gradients, others, rtol=1e-5, atol=1e-6 * largest)


@pytest.mark.parametrize(
    "others",
    [pytest.param((), marks=pytest.mark.slow, id="alone"), pytest.param(CHANGING, id="all")],
)
@pytest.mark.parametrize("name", shipped_names("objectives"))
def test_weights_that_are_cast_once_give_the_results_of_autocast(
    name: str, others: tuple[PassName, ...]
) -> None:
    """In bfloat16, to the bit: the same numbers are multiplied.

    Only a tied weight, which a linear map and an embedding share, has two gradients.  They are
    added in float32 in another order: 1e-6 is 8 units of the last place of the largest number.
    """
    graph = small(name)
    low = replace(settings(graph, "casts", *others), precision="bfloat16")
    planned = after(graph, low)
    autocast = after(graph, replace(low, without=(*low.without, "casts")))
    assert planned.execution.casts is not None

    loss, gradients = learnt(planned, graph, torch.float32, autocast=True)

    wanted, given = learnt(autocast, graph, torch.float32, autocast=True)
    assert loss == wanted
    assert_equal_but_for(tied(planned), gradients, given)


@pytest.mark.needs("oneDNN")
@pytest.mark.parametrize("kernels", [("torch", "fused"), ("onednn", "blocked")], ids="-".join)
@pytest.mark.parametrize("name", shipped_names("objectives"))
def test_kernels_give_the_results_of_plain_products(
    name: str, kernels: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float32; the tolerances are those of `test_specs.py`, which compares each kernel alone."""
    monkeypatch.setattr(product, "ROWS", 1)
    monkeypatch.setattr(blocks, "QUERIES", {torch.float32: 4})
    loss, gradients = with_kernels(name, kernels)

    wanted, given = with_kernels(name, ("torch", "plain"))

    assert loss == pytest.approx(wanted, rel=1e-6)
    assert gradients.keys() == given.keys()
    largest = max(float(x.abs().max()) for x in given.values())
    for path, value in given.items():
        tolerance = 1.2e-5 * float(value.abs().max()) + 1e-6 * largest
        torch.testing.assert_close(gradients[path], value, rtol=0, atol=tolerance, msg=path)
