"""Whether products in int8 are faster on this machine than prepacked ones, by a cached measurement.

Which library and how many bits the processor has decides little alone: with VNNI a product of any
number of rows is faster, in 7 bits only one of many rows, and with AMX hardly any.  So `auto` times
one row, as of a single sentence, and many, as of a batch, and takes int8 if both are faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...blocks.kernels import quantized
from ...blocks.kernels.prepacked import InferenceLinear, PackedLinear, can_pack
from ..system.cache import store, stored
from .autotune import machine_key

ROWS = (1, 64)
"""Rows of the products that are timed: a step of one sentence, and of a batch."""
WIDTHS = (512, 2048)
"""Input and output width of their matrix, that of a feed-forward layer of Transformer base."""
GAIN = 1.1
"""Least speedup of both products; rounding the inputs of others, and packing, takes time too."""
MATRICES = 16
"""Matrices of each kind, one after the other: those of a model do not stay in the cache either."""
ROUNDS = 7
"""Runs of all products, of which the fastest counts."""


def int8_pays(dtype: torch.dtype) -> tuple[bool, str]:
    """Return whether decoding on this CPU is faster with products in int8, and the reason.

    Args:
        dtype: dtype of the products otherwise.
    """
    library = quantized.library()
    if library is None:
        return False, "no library of this torch computes them exactly on this processor"
    if not quantized.is_large(WIDTHS[0] * WIDTHS[1], dtype):
        return False, f"{_named(dtype)} is as fast for all but the largest matrices"
    file = f"int8/{machine_key(torch.device('cpu'), half=dtype == torch.bfloat16)}.json"
    gains, when = _valid(stored(file)), "measured before"
    if gains is None:
        gains, when = _measured(dtype), "measured now"
        store(file, gains)
    times = " and ".join(f"{gains[str(rows)]:.2f}" for rows in ROWS)
    bits = (2 * library.levels - 1).bit_length()
    return min(gains.values()) >= GAIN, (
        f"products of {' and '.join(map(str, ROWS))} rows are {times} x as fast in {bits} bits as "
        f"in {_named(dtype)} ({when})"
    )


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _valid(gains: object) -> dict[str, float] | None:
    """Return gains by rows if this is what a file of them holds."""
    if not isinstance(gains, Mapping) or set(gains) != set(map(str, ROWS)):
        return None
    return dict(gains) if all(isinstance(gain, float) for gain in gains.values()) else None


@torch.inference_mode()
def _measured(dtype: torch.dtype) -> dict[str, float]:
    """Return the speedup by the number of rows."""
    generator = torch.Generator().manual_seed(1)
    width, out_width = WIDTHS
    weight = nn.Parameter(torch.randn(out_width, width, generator=generator), requires_grad=False)

    def maps(kind: type[InferenceLinear]) -> list[Callable[[Tensor], Tensor]]:
        linears = [kind(width, out_width, dtype) for _ in range(MATRICES)]
        for linear in linears:
            linear.weight = weight
        return [*linears]

    copies = [weight.to(dtype).clone() for _ in range(0 if can_pack(dtype) else MATRICES)]
    floats = [partial(F.linear, weight=copy) for copy in copies] or maps(PackedLinear)
    variants = floats, maps(quantized.Int8Linear)
    gains = {}
    for rows in ROWS:
        x = torch.randn(rows, width, generator=generator)
        seconds = [[_seconds(variant, x, dtype) for variant in variants] for _ in range(ROUNDS)]
        before, after = map(min, zip(*seconds, strict=True))
        gains[str(rows)] = before / after
    return gains


def _seconds(maps: Sequence[Callable[[Tensor], Tensor]], x: Tensor, dtype: torch.dtype) -> float:
    start = time.perf_counter()
    for linear in maps:
        linear(x.to(dtype))
    return time.perf_counter() - start
