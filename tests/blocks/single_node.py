"""Specs of a single node, whose ports are the inputs of the spec."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor
from weft.blocks.kernels.decode_state import Capacity
from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse
from weft.graphs.ir.graph import BlockNode, Graph, Part
from weft.runtime.codegen.build import build
from weft.runtime.decode.stepper import reorder
from weft.specs.findings import Finding
from weft.specs.load import loaded

AXES = {"B": "batch", "N": "batch", "T": "time", "S": "time"}


def spec_of(
    use: str,
    inputs: dict[str, str],
    outputs: Any = ("y",),
    *,
    step_axis: Any = "",
    **params: Any,
) -> dict[str, Any]:
    """Return a spec with one node, which reads inputs of some types at ports of their names."""
    used = set(re.findall(r"\b[A-Z]", " ".join(inputs.values())))
    spec: dict[str, Any] = {
        "format": 1,
        "name": "single",
        "axes": {axis: kind for axis, kind in AXES.items() if axis in used},
        "inputs": inputs,
        "outputs": {port: f"node.{port}" for port in outputs},
        "nodes": {"node": {"use": use, "in": {name: name for name in inputs}, "params": params}},
    }
    return spec | ({"step": {"axis": step_axis}} if step_axis else {})


def findings_of(spec: dict[str, Any]) -> list[Finding]:
    """Return the findings of a spec."""
    return analyse(loaded(spec).form, registry())[1]


def graph_of(spec: dict[str, Any]) -> Graph:
    """Return the graph of a spec without mistakes."""
    graph, findings = analyse(loaded(spec).form, registry())
    assert graph is not None, findings
    assert not findings
    return graph


def results_of(spec: dict[str, Any], **values: Tensor) -> dict[str, Tensor]:
    """Return all outputs of a spec."""
    results: dict[str, Tensor] = build(graph_of(spec))(**values)
    return results


def computed(spec: dict[str, Any], **values: Tensor) -> Tensor:
    """Return the output `y` of a spec."""
    return results_of(spec, **values)["y"]


def type_of(spec: dict[str, Any]) -> str:
    """Return the type of the output of a spec."""
    return str(graph_of(spec).outputs["y"])


def part_of(graph: Graph) -> Part:
    """Return the block of the node."""
    (node,) = graph.root.nodes
    assert isinstance(node, BlockNode)
    return node.part


def assert_steps_agree(
    model: Any, inputs: dict[str, Tensor], together: int, axis: int = 1, **fixed: Tensor
) -> None:
    """Compare the steps of a model with the result of all positions, also after a reordering.

    Args:
        model: a model in float64, whose output is `y`.
        inputs: its inputs along time, for two sentences of three rows each, [6, 6, ...].
        together: positions of a step.
        axis: the axis of the output that is time.
        fixed: inputs that do not move, each once for all rows.
    """
    parents, turn = torch.tensor([2, 0, 0, 3, 5, 4]), 3
    rebuilt = {n: torch.cat([v[parents, :turn], v[:, turn:]], 1) for n, v in inputs.items()}
    before, after = model(**inputs, **fixed)["y"], model(**rebuilt, **fixed)["y"]

    state = model.begin(Capacity(2, 3, 6, torch.float64, torch.device("cpu")), **fixed)
    for position in range(0, 6, together):
        if position == turn:
            reorder(state, parents, position)
        some = {name: value[:, position : position + together] for name, value in inputs.items()}
        y = model.step(**some, state=state, position=position)["y"]

        expected = before if position < turn else after
        torch.testing.assert_close(y, expected.narrow(axis, position, together))
