"""Measure attention kernels on shapes that vary, as those of batches do, and on one fixed shape.

    python benchmarks/attention.py                        # on a GPU, in bfloat16: minutes
    python benchmarks/attention.py --device cpu --quick   # the kernels that exist there

Some kernels plan or compile for every new shape, which is lost in benchmarks of one shape; Weft
therefore leaves out that of cuDNN (`blocks/kernels/attention_backends.py`).  Each kernel runs in
its own process: a kernel that was used before may have prepared what another one needs.  Measured
are forward and backward passes over batches of about `--tokens` positions, heads of 64, whose rows
are between half and completely filled.  Padded attention masks keys; causal attention computes all
positions.  `varlen` gets rows without padding; removing it is not measured.  The first use of a
shape includes the allocation of its memory, for every kernel.  Lines are printed for kernels that
do not support a case, with the reason.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from results import add_rows_option, wait_for_turn, write_row
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from weft.blocks.kernels.attention import blocked_attend
from weft.blocks.kernels.attention_backends import (
    AttentionCall,
    fused_attend,
    plain_attend,
    varlen_unpadded,
)
from weft.blocks.kernels.processor import processor_name
from weft.blocks.kernels.unpad import rows_of, without_padding

OF_TORCH = {
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
"""Kernels of scaled_dot_product_attention."""
OURS: dict[str, Any] = {
    "weft fused": fused_attend,
    "weft plain": plain_attend,
    "weft blocked": blocked_attend,
}
"""Weft's backends for padded batches."""
KERNELS = (*OURS, *OF_TORCH, "varlen")
CASES = ("padded", "causal")
WIDTH = 64
REASON = 120
"""Maximum characters of a reason."""


def shapes(tokens: int, count: int) -> list[tuple[int, int]]:
    """Return shapes of batches, rows and positions, each once, in a random order."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randperm(max(count, 96), generator=generator)[:count] + 8
    return [(max(1, tokens // length), length) for length in lengths.tolist()]


def job(
    kernel: str, case: str, shape: tuple[int, int], options: argparse.Namespace
) -> Callable[[], None]:
    """Return a function that runs a kernel on a batch, forward and backward."""
    rows, length = shape
    dtype, causal = getattr(torch, options.precision), case == "causal"
    mask = torch.arange(length) < torch.linspace(length / 2, length, rows).ceil()[:, None]
    count = int(mask.sum())
    mask = mask.to(options.device)
    drawn = [
        torch.randn(rows, length, options.heads, WIDTH, device=options.device, dtype=dtype)
        for _ in range(3)
    ]
    placed = rows_of(mask, count)
    if kernel == "varlen":
        drawn = [without_padding(one, placed) for one in drawn]
    inputs = [one.requires_grad_() for one in drawn]
    allowed = None if causal else mask[:, None, None, :]

    def attended() -> Tensor:
        if kernel == "varlen":
            query, key, value = inputs
            return varlen_unpadded(query, key, value, placed, placed, causal=causal)
        query, key, value = (one.transpose(1, 2) for one in inputs)
        if kernel in OURS:
            found: Tensor = OURS[kernel](AttentionCall(query, key, value, allowed, causal))
            return found
        with sdpa_kernel([OF_TORCH[kernel]]):
            return F.scaled_dot_product_attention(
                query, key, value, attn_mask=allowed, is_causal=causal
            )

    def run() -> None:
        attended().sum().backward()
        if options.device == "cuda":
            torch.cuda.synchronize()

    return run


def seconds(run: Callable[[], None]) -> float:
    """Return the seconds of one run."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def loaded(kernel: str, case: str, options: argparse.Namespace) -> Callable[[], None]:
    """Return a run of a kernel on the fixed shape, after its first use, which loads the kernel."""
    fixed = job(kernel, case, shapes(options.tokens, options.shapes + 1)[0], options)
    fixed()
    return fixed


def measured(
    kernel: str, case: str, fixed: Callable[[], None], options: argparse.Namespace
) -> dict[str, Any]:
    """Return the seconds of a kernel at the first and later uses of shapes, and at a fixed one."""
    _, *new = shapes(options.tokens, options.shapes + 1)
    again = [seconds(fixed) for _ in range(options.shapes)]
    first, later = [], []
    for shape in new:
        run = job(kernel, case, shape, options)
        first.append(seconds(run))
        later.append(statistics.median(seconds(run) for _ in range(options.rounds)))
    return {"kernel": kernel, "case": case, "first": first, "later": later, "fixed": again}


def serve(pipe: Any, kernel: str, options: argparse.Namespace) -> None:
    """Load a kernel; then, on request, send the measurement of a case, or why there is none."""
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")  # torch warns why each other kernel is not used
    runs = {case: attempted(kernel, case, lambda c: loaded(kernel, c, options)) for case in CASES}
    pipe.send(None)
    for case in iter(pipe.recv, None):
        run = runs[case]
        if not isinstance(run, str):
            run = attempted(kernel, case, lambda c, run=run: measured(kernel, c, run, options))
        pipe.send(run)


def attempted(kernel: str, case: str, function: Callable[[str], Any]) -> Any:
    """Return what a function makes of a case, or why a kernel is left out."""
    try:
        return function(case)
    except Exception as error:  # noqa: BLE001 - a kernel that raises anything is left out
        reason, *_ = str(error).strip().splitlines() or [""]
        return f"left out: {kernel}, {case}: {type(error).__name__}: {reason[:REASON]}"


def found_by(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the measurements of all kernels that run here; print who is left out."""
    context = multiprocessing.get_context("spawn")
    # On a GPU the blocked backend is the fused one.
    known = [one for one in KERNELS if one != "weft blocked" or options.device == "cpu"]
    pipes: dict[str, Any] = {}
    kernels = list(options.only or known)
    for kernel in kernels:
        pipes[kernel], there = context.Pipe()
        context.Process(target=serve, args=(there, kernel, options), daemon=True).start()
        there.close()
    for pipe in pipes.values():  # all load at the same time
        asked_of(pipe)
    wait_for_turn(options)
    for kernel, case in itertools.product(kernels, CASES):
        row = asked_of(pipes[kernel], case) or f"left out: {kernel}, {case}: its process ended"
        if isinstance(row, str):
            print(row, flush=True)
        else:
            yield row


def asked_of(pipe: Any, case: str = "") -> Any:
    """Return the next answer of a kernel's process, after asking for a case; None if it ended."""
    try:
        if case:
            pipe.send(case)
        return pipe.recv()
    except (EOFError, OSError):
        return None


def main() -> None:
    """Measure all kernels, and print the medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--precision", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--tokens", type=int, default=25_000, help="positions of a batch")
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--shapes", type=int, default=48, help="number of different shapes")
    parser.add_argument("--rounds", type=int, default=5, help="later uses of each shape")
    parser.add_argument("--threads", type=int, default=1, help="of the CPU (default: 1)")
    parser.add_argument("--only", nargs="*", choices=KERNELS, help="kernels to measure")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try this program")
    add_rows_option(parser)
    options = parser.parse_args()
    if options.quick:
        options.tokens, options.heads, options.shapes, options.rounds = 256, 2, 3, 1
    on_gpu = options.device == "cuda"
    if on_gpu and not torch.cuda.is_available():
        print("no CUDA device: nothing was measured")
        return
    device = torch.cuda.get_device_name() if on_gpu else processor_name()
    print(f"{device}, torch {torch.__version__}, {options.tokens} positions in {options.precision}")
    for row in found_by(options):
        write_row(options.rows, row)
        times = {name: 1000 * statistics.median(row[name]) for name in ("first", "later", "fixed")}
        ms = ", ".join(f"{name} {time:.2f} ms" for name, time in times.items())
        print(f"{row['kernel']}, {row['case']}: {ms}", flush=True)


if __name__ == "__main__":
    main()
