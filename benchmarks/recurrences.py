"""Measure recurrences in chunks against a loop over positions, on one thread.

    python benchmarks/recurrences.py                # T = 512 to 4,096: minutes
    python benchmarks/recurrences.py --lengths 64   # seconds

The loops are those of decoding: one position after another, in the same process, alternating with
the parallel forms.  Measured are forward passes, and forward and backward passes, in float32; the
time, that of the processor, is the median of `--runs`, for one position of one sequence.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F
from weft.blocks.kernels.processor import processor_name
from weft.blocks.recurrent.delta_rule_module import DeltaRule
from weft.blocks.recurrent.linear_recurrence_module import LinearRecurrence

HEAD = 64
"""Key and value width of one head."""
Compute = Callable[..., Tensor]


def linear_loop(x: Tensor, a: Tensor) -> Tensor:
    """Return the states of a linear recurrence, one after another."""
    state, states = torch.zeros_like(x[:, 0]), list[Tensor]()
    for term, factor in zip(x.unbind(1), a.unbind(1), strict=True):
        state = factor * state + term
        states.append(state)
    return torch.stack(states, 1)


def delta_loop(query: Tensor, key: Tensor, value: Tensor, beta: Tensor) -> Tensor:
    """Return the outputs of a delta rule, one position after another."""
    query, key, value, beta = (
        part.unflatten(-1, (beta.size(-1), -1)).transpose(1, 2)
        for part in (query, key, value, beta)
    )
    query, key = F.normalize(query, dim=-1), F.normalize(key, dim=-1)
    state = query.new_zeros(*key.shape[:2], key.size(-1), value.size(-1))
    outputs = []
    for q, k, v, b in zip(*(part.unbind(2) for part in (query, key, value, beta)), strict=True):
        change = b * (v - (k[:, :, None] @ state)[:, :, 0])
        state = state + k[..., None] * change[:, :, None]
        outputs.append((q[:, :, None] @ state)[:, :, 0])
    return torch.stack(outputs, 2).transpose(1, 2).flatten(2)


def forms(name: str, width: int) -> tuple[Compute, Compute]:
    """Return the parallel form of a recurrence, and its loop."""
    if name == "linear_recurrence":
        return LinearRecurrence(width), linear_loop
    return DeltaRule(width // HEAD, HEAD, HEAD, 64, normalize=True), delta_loop


def inputs(name: str, rows: int, length: int, width: int) -> list[Tensor]:
    """Return inputs of a recurrence that need gradients."""
    generator = torch.Generator().manual_seed(1)

    def normal(size: int) -> Tensor:
        return torch.randn(rows, length, size, generator=generator)

    if name == "linear_recurrence":
        parts = [normal(width), normal(width).sigmoid()]
    else:
        parts = [*(normal(width) for _ in range(3)), normal(width // HEAD).sigmoid()]
    return [part.requires_grad_() for part in parts]


def timed(compute: Compute, parts: list[Tensor], *, backward: bool) -> float:
    """Return the seconds of a pass on the processor, without waiting for other programs."""
    start = time.process_time()
    with torch.set_grad_enabled(backward):
        y = compute(*parts)
    if backward:
        torch.autograd.grad(y.sum(), parts)
    return time.process_time() - start


def main() -> None:
    """Print a row of a table for each recurrence, length and pass."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{processor_name()}, torch {torch.__version__}, one thread, B={options.rows},")
    print(f"width {options.width}, microseconds for one position of one sequence\n")
    print("| block | T | pass | chunks | loop | loop / chunks | largest difference |")
    print("|---|---|---|---|---|---|---|")
    for name in ("linear_recurrence", "delta_rule"):
        for length in options.lengths:
            parts = inputs(name, options.rows, length, options.width)
            both = forms(name, options.width)
            with torch.no_grad():
                difference = (both[0](*parts) - both[1](*parts)).abs().max().item()
            for backward in (False, True):
                times: list[list[float]] = [[], []]
                for _ in range(options.runs):
                    for compute, measured in zip(both, times, strict=True):
                        measured.append(timed(compute, parts, backward=backward))
                chunks, loop = (
                    statistics.median(measured) / length / options.rows * 1e6 for measured in times
                )
                what = "forward and backward" if backward else "forward"
                print(
                    f"| {name} | {length:,} | {what} | {chunks:.2f} | {loop:.2f} |"
                    f" {loop / chunks:.1f} | {difference:.1e} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
