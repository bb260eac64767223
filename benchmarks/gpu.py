"""Measure seconds until the first compiled update of Transformer base on a GPU, by depth.

    python benchmarks/gpu.py

Without CUDA, print a note and stop; `--device cpu` tries this program.  For the speed of updates,
see `train.py --device cuda`.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
import weft
from contestants import VOCAB
from results import add_rows_option, wait_for_turn, write_row
from train import finished, make_batches, shifted
from weft.blocks.kernels.losses.cross_entropy import smoothed_cross_entropy
from weft.blocks.kernels.processor import processor_name

DEPTHS = (6, 24)


class Job:
    """One model with its optimizer and batches on the GPU."""

    def __init__(self, layers: int, mode: str, tokens: int, device: str) -> None:
        """Build the model and compile it with `mode`."""
        self.device = device
        spec = weft.load("transformer-base", layers=layers, vocab=VOCAB)
        self.model = weft.build(spec, device=device).train()
        self.report = weft.compile(self.model, mode)  # type: ignore[arg-type]
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, fused=True)
        self.batches = [tuple(ids.to(device) for ids in pair) for pair in make_batches(tokens)]

    def step(self, index: int) -> int:
        """Make one update; return its number of target tokens."""
        source, target = self.batches[index % len(self.batches)]
        with torch.autocast(self.device, torch.bfloat16):
            batch = {"source": source, "source_mask": source != 0, "target": shifted(target)}
            logits = self.model(**batch)["logits"]
        mask = target != 0
        loss, _ = smoothed_cross_entropy(logits, target, mask, smoothing=0.1, spread="vocabulary")
        (loss / mask.sum()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return int((target != 0).sum())


def first_step(layers: int, mode: str, tokens: int, device: str) -> dict[str, Any]:
    """Return the seconds until the first update is done, and the number of graphs."""
    torch._dynamo.reset()  # noqa: SLF001 - each depth starts cold
    job = Job(layers, mode, tokens, device)
    start = time.perf_counter()
    job.step(0)
    finished(device)
    seconds = time.perf_counter() - start
    return {"layers": layers, "mode": mode, "seconds": seconds, "graphs": job.report.found}


def main() -> None:
    """Measure each depth and print it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--layers", nargs="*", type=int, default=DEPTHS, help="depths to measure")
    parser.add_argument("--mode", choices=("layers", "eager"), default="layers")
    parser.add_argument("--tokens", type=int, default=2048, help="target tokens of the update")
    add_rows_option(parser)
    options = parser.parse_args()
    on_gpu = options.device == "cuda"
    if on_gpu and not torch.cuda.is_available():
        print("no CUDA device: nothing was measured")
        return
    print(
        torch.cuda.get_device_name() if on_gpu else processor_name(), f"torch {torch.__version__}"
    )
    wait_for_turn(options)
    for layers in options.layers:
        row = first_step(layers, options.mode, options.tokens, options.device)
        write_row(options.rows, row)
        print("{layers} layers, {mode}: {seconds:.1f} s, {graphs} graphs".format(**row), flush=True)


if __name__ == "__main__":
    main()
