"""Specs of one node over values of some types."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from torch import Tensor
from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse
from weft.graphs.ir.graph import Graph
from weft.runtime.codegen.build import build
from weft.specs.findings import Finding
from weft.specs.load import loaded

SpecOf = Callable[..., dict[str, Any]]
Checked = Callable[[dict[str, Any]], tuple[Graph | None, list[Finding]]]
Computed = Callable[..., dict[str, Tensor]]


@pytest.fixture
def spec_of() -> SpecOf:
    """Return a function that returns a spec of one node, given its block and types of its ports."""

    def spec(
        use: str, types: Mapping[str, str], outputs: tuple[str, ...] = ("y",), **params: Any
    ) -> dict[str, Any]:
        used = sorted(set(re.findall(r"\b[A-Z]\b", " ".join(types.values()))))
        return {
            "format": 1,
            "name": "one-node",
            "axes": {axis: "batch" if axis == "B" else "time" for axis in used},
            "inputs": dict(types),
            "outputs": {port: f"node.{port}" for port in outputs},
            "nodes": {"node": {"use": use, "in": {n: n for n in types}, "params": params}},
        }

    return spec


@pytest.fixture
def checked() -> Checked:
    """Return a function that returns the graph of a spec, and its findings."""
    return lambda spec: analyse(loaded(spec).form, registry())


@pytest.fixture
def computed(checked: Checked) -> Computed:
    """Return a function that returns the outputs of a spec without mistakes."""

    def outputs(spec: dict[str, Any], **values: Tensor) -> dict[str, Tensor]:
        graph, findings = checked(spec)
        assert graph is not None, findings
        result: dict[str, Tensor] = build(graph)(**values)
        return result

    return outputs
