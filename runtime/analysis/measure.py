"""Measure the time and memory of a spec by node, for comparison with the cost formulas.

It profiles a forward and a backward pass of the complete model on random inputs, with the
profiler that training uses.  The cost formulas are in `graphs/cost/table.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.profiler import record_function

from ...graphs.cost.flops import check_sizes
from ...graphs.ir.graph import Graph
from ...graphs.ir.value_type import ValueType
from ...specs.findings import InputError
from ..codegen.build import build
from ..codegen.examples import example_inputs
from ..profiling.record import record
from ..profiling.scopes import LOSS
from ..profiling.summary import Profile

WARMUP, TIMES = 2, 5
"""Number of warm-up passes, and of measured passes."""


def measure(
    graph: Graph,
    sizes: Mapping[str, int],
    precision: str = "float32",
    device: torch.device | str | None = None,
) -> Profile:
    """Return the measured cost of a forward and a backward pass by node; layers are not compiled.

    Args:
        graph: a checked graph.
        sizes: length of each axis of the graph.
        precision: of matrix products, `float32` or `bfloat16`; weights stay float32.
        device: default: the accelerator if there is one, else the CPU.

    Raises:
        InputError: an axis has no size, or no output of the graph has a gradient.
    """
    check_sizes(graph, sizes)
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    model = build(graph, device=place).train()
    inputs = example_inputs(model, sizes, padding=False)
    if not any(_is_differentiable(type_) for type_ in graph.outputs.values()):
        raise InputError(f"no output of {graph.name} has a gradient", help="remove --measure")

    def once() -> None:
        half = torch.autocast(place.type, torch.bfloat16, enabled=precision == "bfloat16")
        with half, record_function(LOSS):
            given: dict[str, Any] = model(**inputs)
            floats = [out for out in given.values() if out.requires_grad]
            total = torch.stack([out.float().sum() for out in floats]).sum()
        total.backward()
        model.zero_grad(set_to_none=True)

    return record(once, model, graph, updates=TIMES, warmup=WARMUP, device=place)


def _is_differentiable(type_: ValueType) -> bool:
    """Return whether values of a type may have gradients."""
    return type_.kind in ("f", "logits", "logp", "score", "loss", "bias")
