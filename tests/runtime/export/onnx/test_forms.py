"""The ONNX forms of blocks compute the same as the modules that they replace."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.graph import Graph
from weft.runtime.codegen.build import build
from weft.runtime.export.onnx.forms import onnx_forms
from weft.specs.load import loaded


def randomized(module: nn.Module) -> nn.Module:
    """Set random weights in double precision, with nonzero biases."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in module.double().parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    return module.eval()


def graph_of_block(use: str, **params: Any) -> Graph:
    """Return a graph with one node, `block`, that reads x [B T 6] and a mask."""
    [block] = [one for one in registry() if one.key == use]
    wires = {"x": "x", "mask": "mask"}
    ports = [
        port.name for port in block.signature(block.params(**params), frozenset(wires)).outputs
    ]
    spec = {
        "format": 2,
        "name": "one",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 6]", "mask": "mask[B T]"},
        "outputs": {port: f"block.{port}" for port in ports},
        "nodes": {"block": {"use": use, "params": params, "in": wires}},
    }
    return check(loaded(spec).form, registry())


@pytest.mark.parametrize(
    ("use", "params"),
    [
        ("mixture_of_experts@1", {"d_ff": 5, "experts": 7, "top_k": 2}),
        ("mixture_of_experts@1", {"d_ff": 3, "experts": 7, "top_k": 1, "activation": "gelu"}),
        ("mixture_of_experts@1", {"d_ff": 5, "experts": 7, "activation": "silu", "gated": True}),
        ("span_score@1", {"d_hidden": 5, "labels": 4}),
    ],
    ids=["experts", "switch", "gated", "spans"],
)
def test_the_exported_form_agrees_with_the_module(use: str, params: dict[str, Any]) -> None:
    """Results agree up to rounding, also with masked positions."""
    graph = graph_of_block(use, **params)
    model = randomized(build(graph))
    block = model.get_submodule("block")
    x = torch.randn(3, 5, 6, dtype=torch.double)
    mask = torch.arange(5) < torch.tensor([[5], [2], [4]])

    with torch.no_grad():
        expected = model(x=x, mask=mask)
        with onnx_forms(model, graph):
            replaced = {*vars(block)}
            found = model(x=x, mask=mask)

    for port, value in expected.items():
        torch.testing.assert_close(found[port], value, rtol=0, atol=1e-12)
    assert replaced - {*vars(block)}


def test_modules_are_restored_also_after_an_error() -> None:
    """The instance attribute that hides the method is removed."""
    graph = graph_of_block("lstm@1", d_hidden=3)
    model = build(graph)
    names = {*vars(model.get_submodule("block"))}

    with pytest.raises(RuntimeError, match="fault"), onnx_forms(model, graph):
        raise RuntimeError("fault")

    assert {*vars(model.get_submodule("block"))} == names
