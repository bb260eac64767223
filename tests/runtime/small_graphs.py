"""Shared fixtures of code generation tests: small Transformers, as JSON and as graphs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.graph import Graph
from weft.specs.load import load, loaded

SMALL = {"vocab": 11, "d_model": 8, "heads": 2, "d_ff": 12, "layers": 2, "dropout": 0.0}

GraphOf = Callable[..., Graph]
Inputs = Callable[..., dict[str, Tensor]]


@pytest.fixture
def spec() -> Callable[[], dict[str, Any]]:
    """Return a function that returns a new copy of the tiny Transformer's JSON value."""

    def value() -> dict[str, Any]:
        text = load("transformer-tiny").form.model_dump_json(by_alias=True, exclude_unset=True)
        return json.loads(text)

    return value


@pytest.fixture
def graph(spec: Callable[[], dict[str, Any]]) -> GraphOf:
    """Return a function that checks a spec (default: the tiny Transformer) with small params."""

    def checked(written: dict[str, Any] | None = None, **params: Any) -> Graph:
        small = SMALL if written is None or "vocab" in written.get("params", {}) else {}
        form = loaded(spec() if written is None else written).form
        return check(form, registry(), {**small, **params})

    return checked


@pytest.fixture
def inputs() -> Inputs:
    """Return a function that draws a batch for the tiny Transformer, including padding."""

    def drawn(rows: int = 3, source: int = 6, target: int = 5, seed: int = 0) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        mask = torch.arange(source) < torch.randint(1, source + 1, (rows, 1), generator=generator)
        return {
            "source": torch.randint(11, (rows, source), generator=generator),
            "source_mask": mask,
            "target": torch.randint(11, (rows, target), generator=generator),
        }

    return drawn
