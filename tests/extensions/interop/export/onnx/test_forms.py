"""The ONNX forms of blocks compute the same as the modules that they replace."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from weft.blocks.recurrent.recurrent_module import LSTM
from weft.blocks.recurrent.recurrent_onnx import scan
from weft.blocks.registry import registry
from weft.extensions.interop.export.onnx import in_onnx_forms
from weft.graphs.checker.check import check
from weft.graphs.ir.graph import Graph
from weft.runtime.codegen.build import build
from weft.runtime.codegen.generated import program_of
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
        "format": 1,
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
    x = torch.randn(3, 5, 6, dtype=torch.double)
    mask = torch.arange(5) < torch.tensor([[5], [2], [4]])

    with torch.no_grad():
        expected = model(x=x, mask=mask)
        formed = in_onnx_forms(graph, model)
        found = formed(x=x, mask=mask)

    for port, value in expected.items():
        torch.testing.assert_close(found[port], value, rtol=0, atol=1e-12)
    method = program_of(formed).graph.execution.forms["block"].partition("=")[0]
    forms = [type(one.get_submodule("block")) for one in (model, formed)]
    assert getattr(forms[0], method) is not getattr(forms[1], method)
    assert [*formed.state_dict()] == [*model.state_dict()]


def test_every_block_that_names_a_form_gets_it() -> None:
    """The generated class of the block has the function as its method."""
    graph = graph_of_block("lstm@1", d_hidden=3)
    block: Any = in_onnx_forms(graph, build(graph)).get_submodule("block")

    assert block._scan.__func__ is scan
    assert isinstance(block, LSTM)
