"""Measure what casting weights once an update is worth, in processor time on the CPU.

    python benchmarks/casts.py                       # the model of the paper: 2 GB of memory
    python benchmarks/casts.py --layers 2 --vocab 8000

An update of Transformer base in bfloat16 has the same tokens in one batch or in several
micro-batches, with the pass `casts` and without it.  Both take turns, and the minimum is reported.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
import weft
from weft.graphs.passes.pipeline import PassSettings, after
from weft.runtime.codegen.build import build
from weft.runtime.spec.check import graph_of
from weft.specs.load import load
from weft.specs.reader import shipped_names

LENGTH = 32


def update(options: argparse.Namespace, batches: int, *, casts: bool) -> Callable[[], None]:
    """Return an update of a new model."""
    sizes = {"vocab": options.vocab, "source_vocab": options.vocab}
    model = {
        "spec": "transformer-base",
        "params": {"vocab": options.vocab, "layers": options.layers},
    }
    graph = graph_of(
        load(str(shipped_names("objectives")["translation"]), {"model": model} | sizes)
    )
    without: Any = () if casts else ("casts",)
    planned = after(graph, PassSettings(unpad=False, precision="bfloat16", without=without))
    module = build(planned).train()
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-4, fused=True)
    rows = options.tokens // LENGTH // batches
    inputs = [
        weft.example_inputs(graph, {"B": rows, "S": LENGTH, "T": LENGTH}) for _ in range(batches)
    ]

    def run() -> None:
        for one in inputs:
            with torch.autocast("cpu", torch.bfloat16):
                loss = module(**one)["loss"]
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return run


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--vocab", type=int, default=37_000)
    parser.add_argument("--tokens", type=int, default=4096, help="target tokens of an update")
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print("| micro-batches | without the pass, s | with it, s | ratio |\n|---|---|---|---|")
    for batches in options.batches:
        ways = [update(options, batches, casts=casts) for casts in (False, True)]
        times: list[list[float]] = [[], []]
        for turn in range(options.rounds + 1):
            for way, found in zip(ways, times, strict=True):
                start = time.process_time()
                way()
                if turn:
                    found.append(time.process_time() - start)
        before, now = map(min, times)
        print(f"| {batches} | {before:.3f} | {now:.3f} | {now / before:.3f} |", flush=True)


if __name__ == "__main__":
    main()
