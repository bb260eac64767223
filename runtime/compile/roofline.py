"""Peak FLOP/s of a device, measured with matrix products, as the reference for MFU.

The peak is measured once per device, precision and number of threads, and cached in the
user's cache folder.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch

from ...blocks.kernels import linear as product
from ...graphs.cost.flops import TRAINING, flops
from ...graphs.ir.graph import Graph
from ..system.cache import store, stored
from .autotune import device_identity

FILE = "peak_flops.json"
"""File of the measurements in the cache folder."""
SIZES = {"cpu": 2048, "cuda": 8192}
"""Rows and columns of the measured matrices, by device type."""
SECONDS = 0.5
"""Duration of a measurement; the fastest product is used."""
TIMES = 3
"""Minimum number of products of each kernel."""


def peak_flops(
    device: torch.device, dtype: torch.dtype, measure: Callable[[], float] | None = None
) -> float:
    """Return the peak floating-point operations per second of matrix products.

    Args:
        device: device to measure.
        dtype: dtype of the matrices.
        measure: callback that returns the peak; None multiplies square matrices for `SECONDS`.
    """
    identity = device_identity(device)
    key = " | ".join((identity, str(dtype), str(torch.get_num_threads()), torch.__version__))
    cached = stored(FILE)
    peaks: dict[str, float] = {}
    if isinstance(cached, dict):
        peaks = {name: value for name, value in cached.items() if isinstance(value, float)}
    if key not in peaks:
        peaks[key] = float(measure() if measure is not None else _measured(device, dtype))
        store(FILE, peaks)
    return peaks[key]


def full_speed(graph: Graph, lengths: Mapping[str, float], peak_flops: float) -> float | None:
    """Return the tokens per second of a training at peak FLOP/s (MFU 1).

    Args:
        graph: graph of the model or the objective.
        lengths: input to its mean number of tokens, special tokens included; inputs with the same
            last axis count once.
        peak_flops: floating-point operations per second.

    Returns:
        Tokens per second, or None for a graph whose time axes are not all among the inputs.
    """
    sizes = {
        str(graph.inputs[name].axes[-1]): max(1, round(length))
        for name, length in lengths.items()
        if name in graph.inputs
    }
    tokens = sum(sizes.values())
    sizes |= {axis: 1 for axis, kind in graph.spec.axes.items() if kind == "batch"}
    if set(sizes) != set(graph.spec.axes):
        return None
    work = TRAINING * flops(graph, sizes)
    return peak_flops * tokens / work if work else None


def _measured(device: torch.device, dtype: torch.dtype) -> float:
    """Return the FLOP/s of the fastest product.

    On a CPU its processor time counts, in which all threads work: another program that runs at the
    same time would lower a peak that is kept for good.
    """
    size = SIZES.get(device.type, SIZES["cpu"])
    lhs, right = (torch.rand(size, size, device=device).to(dtype) for _ in range(2))

    def once(kernel: product.Product) -> float:
        start, used = time.perf_counter(), time.process_time()
        product.times_transposed(lhs, right, kernel)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            return time.perf_counter() - start
        return (time.process_time() - used) / torch.get_num_threads()

    seconds = list[float]()
    kinds: tuple[product.Product, ...] = ("torch", "onednn") if product.has_onednn() else ("torch",)
    for kind in kinds:
        once(kind)
        seconds += [once(kind) for _ in range(TIMES)]
        start = time.perf_counter()
        while time.perf_counter() - start < SECONDS / len(kinds):
            seconds.append(once(kind))
    return 2.0 * size**3 / min(seconds)
