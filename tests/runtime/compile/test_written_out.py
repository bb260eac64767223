"""Layers that are written out under torch.compile: as many graphs as expected, whatever the sizes.

The traced graphs run without code generation, since only their number and their values matter.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
from torch import Tensor
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.passes.merge import merged_nodes
from weft.runtime.codegen.build import build
from weft.runtime.compile.torch_compile import compile_model
from weft.specs.load import loaded

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("own_compiler"),
    pytest.mark.filterwarnings("ignore"),  # of Dynamo, about itself
]
Nodes = dict[str, Any]


def node(use: str, params: dict[str, Any], **wires: str) -> dict[str, Any]:
    """Return a node."""
    return {"use": use, "in": wires, "params": params}


def map_of(width: int, value: str) -> dict[str, Any]:
    """Return a linear map."""
    return node("linear@1", {"d_out": width}, x=value)


FORMULAS: Nodes = {
    "gate": map_of(8, "x"),
    "value": map_of(8, "x"),
    "mixed": node(
        "elementwise@1",
        {"y": "where(m, sigmoid(g) * z + x, x)"},
        g="gate.y",
        z="value.y",
        x="x",
        m="mask",
    ),
}
SPLIT = {"y": "b t (h k) -> b h t k", "sizes": {"h": 2}}
ATTENTION: Nodes = {
    "maps": map_of(8, "x"),
    "heads": node("einsum@1", SPLIT, x="maps.y"),
    "keys": node("einsum@1", SPLIT, x="x"),
    "product": node("einsum@1", {"y": "b h t k, b h s k -> b h t s"}, x="heads.y", z="keys.y"),
    "size": node("reduce@1", {"y": "b t d -> b t", "by": "max"}, x="x"),
    "scores": node(
        "elementwise@1",
        {"y": "x / 2 - z", "axes": {"x": "b h t s", "z": "b s"}},
        x="product.y",
        z="size.y",
    ),
    "weights": node(
        "softmax@1",
        {"y": "b h t s", "causal": "t", "mask": "b s"},
        x="scores.y",
        mask="mask",
    ),
    "sum": node("einsum@1", {"y": "b h t s, b h s k -> b h t k"}, x="weights.y", z="heads.y"),
    "mixed": node("einsum@1", {"y": "b h t k -> b t (h k)"}, x="sum.y"),
}
BENT: Nodes = ATTENTION | {
    "scores": node(
        "elementwise@1",
        {"y": "tanh(x) - z", "axes": {"x": "b h t s", "z": "b s"}},
        x="product.y",
        z="size.y",
    ),
}
"""Attention that is not in its standard form, and is computed node by node."""
SCAN: Nodes = {
    "narrow": map_of(8, "x"),
    "mixed": {
        "use": "scan@1",
        "in": {"x": "narrow.y", "mask": "mask"},
        "params": {"carry": {"h": 8}},
        "fill": {"cell": {"use": "cell"}},
    },
}
CELL: Nodes = {
    "inputs": {"x": "f[B 1 8]", "h": "f[B 1 8]"},
    "outputs": {"h": "next.y"},
    "nodes": {
        "old": map_of(8, "h"),
        "next": node("elementwise@1", {"y": "tanh(x + z)"}, x="x", z="old.y"),
    },
}
BLOCK: Nodes = {
    "block": node("attention@1", {"heads": 2, "sinks": True}, x="x"),
    "mean": node("reduce@1", {"y": "b h t s -> b t s", "by": "mean"}, x="block.weights"),
    "read": node("einsum@1", {"y": "b t s, b s d -> b t d"}, x="mean.y", z="x"),
    "mixed": node("elementwise@1", {"y": "where(m, x + z, x)"}, x="read.y", z="block.y", m="mask"),
}
"""Attention whose weights are read."""
RECURRENCE: Nodes = {
    "new": map_of(8, "x"),
    "gate": map_of(8, "x"),
    "factor": node("elementwise@1", {"y": "sigmoid(x)"}, x="gate.y"),
    "states": node("linear_recurrence@1", {}, x="new.y", a="factor.y", mask="mask"),
    "mixed": node("elementwise@1", {"y": "tanh(x) + z"}, x="states.y", z="x"),
}
"""A recurrence with maps before and after it, which a graph break would separate."""
DELTA: Nodes = {
    **{name: map_of(8, "x") for name in ("query", "key", "value")},
    "rate": map_of(2, "x"),
    "beta": node("elementwise@1", {"y": "sigmoid(x)"}, x="rate.y"),
    "states": node(
        "delta_rule@1",
        {"heads": 2, "chunk": 3},
        query="query.y",
        key="key.y",
        value="value.y",
        beta="beta.y",
        mask="mask",
    ),
    "mixed": node("elementwise@1", {"y": "tanh(x) + z"}, x="states.y", z="x"),
}
"""The delta rule, of which each batch has more than one chunk."""
EXPERTS: Nodes = {
    "mixed": {
        "use": "mixture_of_experts@1",
        "in": {"x": "x", "mask": "mask"},
        "params": {"experts": 4, "d_ff": 12, "gated": True},
    }
}
LAYERS: dict[str, tuple[Nodes, str, str]] = {
    "linear recurrence": (RECURRENCE, "mixed.y", "Layer"),
    "delta rule": (DELTA, "mixed.y", "Layer"),
    "weights of attention": (BLOCK, "mixed.y", "Layer"),
    "formulas": (FORMULAS, "mixed.y", "Layer"),
    "attention": (ATTENTION, "mixed.y", "Layer"),
    "bent attention": (BENT, "mixed.y", "Layer"),
    "scan": (SCAN, "mixed.h", "Cell"),
    "experts": (EXPERTS, "mixed.y", "Layer"),
}
"""Nodes of a layer, what it returns, and the class that is compiled."""


def spec_of(nodes: Nodes, output: str) -> dict[str, Any]:
    """Return a spec of two layers."""
    layer = {
        "inputs": {"x": "f[B T 8]", "mask": "mask[B T]"},
        "outputs": {"x": output},
        "nodes": nodes,
    }
    cell = {"cell": CELL} if nodes is SCAN else {}
    wires = {"x": "x", "mask": "mask"}
    return {
        "format": 1,
        "name": "layers",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]", "mask": "mask[B T]"},
        "outputs": {"y": "stack.x"},
        "blocks": {"layer": layer, **cell},
        "nodes": {"stack": {"repeat": 2, "block": "layer", "carry": ["x"], "in": wires}},
    }


def drawn(rows: int, length: int) -> dict[str, Tensor]:
    """Return random inputs, of which the last position of some rows is padding."""
    mask = torch.ones(rows, length, dtype=torch.bool)
    mask[::2, -1] = False
    return {"x": torch.randn(rows, length, 8).requires_grad_(), "mask": mask}


@pytest.mark.parametrize("layer", LAYERS)
def test_written_layers_need_the_expected_graphs(
    layer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In training, for batches of other sizes too, with the outputs and gradients of the layer."""
    nodes, output, template = LAYERS[layer]
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    graph = check(loaded(spec_of(nodes, output)).form, registry())
    assert bool(merged_nodes(graph)) is (layer == "attention")
    eager = build(graph)
    compiled = copy.deepcopy(eager)
    report = compile_model(compiled, "layers")

    for shape in ((3, 6), (2, 9), (5, 4), (4, 3)):  # the last is one chunk of the delta rule
        batch = drawn(*shape)
        first, second = eager(**batch)["y"], compiled(**batch)["y"]
        torch.testing.assert_close(second, first)
        first.sum().backward()
        second.sum().backward()

    assert (report.templates, report.expected, report.found) == ((template,), 1, 1)
    for one, two in zip(eager.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad)
