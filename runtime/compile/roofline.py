"""Ceiling: how fast a device multiplies matrices, which bounds how fast it can train.

Measured once for a device, a precision and a number of threads, and kept in the user's
cache folder.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from ...blocks.kernels import linear as product
from ...graphs.cost.flops import flops
from ...graphs.ir.graph import Graph
from ..system.cache import store, stored
from .autotune import device_identity

FILE = "peak_flops.json"
"""Where it is kept, in the cache folder."""
SIZES = {"cpu": 2048, "cuda": 8192}
"""Rows and columns of the matrices."""
SECONDS = 0.5
"""How long it is measured, and the best product counts."""
TIMES = 3
"""Products, at least."""
TRAINING = 3
"""Training costs so many forward passes: the backward pass does each product twice."""


def peak_flops(
    device: torch.device, dtype: torch.dtype, measure: Callable[[], float] | None = None
) -> float:
    """Return the floating-point operations that matrix products do in a second.

    Args:
        device: where.
        dtype: of the matrices.
        measure: measures it; None multiplies square matrices for `SECONDS`.
    """
    where = device_identity(device)
    key = " | ".join((where, str(dtype), str(torch.get_num_threads()), torch.__version__))
    held = stored(FILE)
    known: dict[str, float] = {}
    if isinstance(held, dict):
        known = {name: value for name, value in held.items() if isinstance(value, float)}
    if key not in known:
        known[key] = float(measure() if measure is not None else _measured(device, dtype))
        store(FILE, known)
    return known[key]


def full_speed(graph: Graph, source: float, target: float, peak_flops: float) -> float | None:
    """Return the tokens a second, both sides together, at which nothing but products would run.

    Args:
        graph: of the model.
        source: mean tokens of a source sentence, its end counted.
        target: the same of the other side.
        peak_flops: operations a second.

    Returns:
        None for a graph that has not one axis for each side.
    """
    lengths = {"source": max(1, round(source)), "target": max(1, round(target))}
    sizes = {axis: 1 for axis, kind in graph.spec.axes.items() if kind == "batch"}
    for side, length in lengths.items():
        if side not in graph.inputs:
            return None
        sizes[str(graph.inputs[side].axes[-1])] = length
    if set(sizes) != set(graph.spec.axes):
        return None
    work = TRAINING * flops(graph, sizes)
    return peak_flops * sum(lengths.values()) / work if work else None


def _measured(device: torch.device, dtype: torch.dtype) -> float:
    size = SIZES.get(device.type, SIZES["cpu"])
    left, right = (torch.rand(size, size, device=device).to(dtype) for _ in range(2))

    def once() -> float:
        began = time.perf_counter()
        product.times_transposed(left, right)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - began

    took, before = list[float](), product.product_in_use()
    kinds: tuple[product.Product, ...] = ("torch", "onednn") if product.has_onednn() else ("torch",)
    try:
        for kind in kinds:
            product.use_product(kind)
            once()
            took += [once() for _ in range(TIMES)]
            began = time.perf_counter()
            while time.perf_counter() - began < SECONDS / len(kinds):
                took.append(once())
    finally:
        product.use_product(before)
    return 2.0 * size**3 / min(took)
