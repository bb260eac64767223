"""Measure the time and memory of a spec by node, for comparison with the cost formulas.

It profiles a forward pass of the complete model on random inputs, with or without a backward pass,
with the profiler that training uses.  The cost formulas are in `graphs/cost/table.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.profiler import record_function

from ...graphs.cost.flops import check_sizes
from ...graphs.ir.graph import Graph
from ...graphs.ir.value_type import ValueType
from ...specs.findings import InputError
from ..codegen.build import build
from ..codegen.examples import example_inputs
from .profile_record import record
from .profile_scopes import LOSS
from .profile_summary import Profile

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
    torch_device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    model = build(graph, device=torch_device).train()
    inputs = example_inputs(model, sizes, padding=False)
    if not any(_is_differentiable(type_) for type_ in graph.outputs.values()):
        raise InputError(f"no output of {graph.name} has a gradient", help="remove --measure")

    def once() -> None:
        half = torch.autocast(torch_device.type, torch.bfloat16, enabled=precision == "bfloat16")
        with half, record_function(LOSS):
            outputs: dict[str, Any] = model(**inputs)
            floats = [out for out in outputs.values() if out.requires_grad]
            total = torch.stack([out.float().sum() for out in floats]).sum()
        total.backward()
        model.zero_grad(set_to_none=True)

    return record(once, model, graph, updates=TIMES, warmup=WARMUP, device=torch_device)


def measure_forward(
    graph: Graph,
    sizes: Mapping[str, int],
    *,
    seconds: float | None = None,
    device: torch.device | str | None = None,
) -> Profile:
    """Return the measured cost of a forward pass without gradients by node.

    Args:
        graph: a checked graph.
        sizes: length of each axis of the graph.
        seconds: time after which the measurement is given up; fewer passes are measured if they
            would take longer.
        device: default: the accelerator if there is one, else the CPU.

    Raises:
        InputError: an axis has no size, or a single pass takes too long.
    """
    check_sizes(graph, sizes)
    torch_device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    model = build(graph, device=torch_device).eval()
    inputs = example_inputs(model, sizes, padding=False)

    def once() -> None:
        model(**inputs)

    started = time.perf_counter()
    with torch.inference_mode(), _stopping(model, seconds):
        once()
        taken = time.perf_counter() - started
        # The first pass is the slowest; a profiled one takes longer than others.
        times = TIMES if seconds is None else min(TIMES, int((seconds - taken) / (2 * taken)))
        return record(once, model, graph, updates=max(1, times), warmup=0, device=torch_device)


@contextmanager
def _stopping(model: nn.Module, seconds: float | None) -> Iterator[None]:
    """Raise an error before a module of a model runs if the time is over.

    Raises:
        InputError: it is.
    """
    if seconds is None:
        yield
        return
    end = time.perf_counter() + seconds

    def check(*_: Any) -> None:
        if time.perf_counter() > end:
            raise InputError(
                f"a forward pass takes longer than {seconds:g} seconds",
                location="sizes",
                help="choose smaller sizes, or run 'weft cost SPEC --measure'",
            )

    hooks = [module.register_forward_pre_hook(check) for module in model.modules()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _is_differentiable(type_: ValueType) -> bool:
    """Return whether values of a type may have gradients."""
    return type_.kind in ("f", "logits", "logp", "score", "loss", "bias")
