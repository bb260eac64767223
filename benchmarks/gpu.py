"""Measure seconds until the first compiled update of Transformer base on a GPU, by depth.

    python benchmarks/gpu.py

Without CUDA, print a note and stop.  For the speed of updates, see `train.py --device cuda`.
"""

from __future__ import annotations

import json
import time
from typing import Any

import torch
import weft
from train import VOCAB, make_batches, shifted
from weft.blocks.kernels.losses.cross_entropy import smoothed_cross_entropy

DEPTHS = (6, 24)


class Job:
    """One model with its optimizer and batches on the GPU."""

    def __init__(self, layers: int, mode: str, tokens: int) -> None:
        """Build the model and compile it with `mode`."""
        spec = weft.load("transformer-base", layers=layers, vocab=VOCAB)
        self.model = weft.build(spec, device="cuda").train()
        self.report = weft.compile(self.model, mode)  # type: ignore[arg-type]
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, fused=True)
        self.batches = [tuple(ids.cuda() for ids in pair) for pair in make_batches(tokens)]

    def step(self, index: int) -> int:
        """Make one update; return its number of target tokens."""
        source, target = self.batches[index % len(self.batches)]
        with torch.autocast("cuda", torch.bfloat16):
            logits = self.model(source, source != 0, shifted(target))["logits"]
        mask = target != 0
        loss, _ = smoothed_cross_entropy(logits, target, mask, smoothing=0.1, spread="vocabulary")
        (loss / mask.sum()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return int((target != 0).sum())


def first_step(layers: int, mode: str) -> dict[str, Any]:
    """Return the seconds until the first update is done, and the number of graphs."""
    torch._dynamo.reset()  # noqa: SLF001 - each depth starts cold
    job = Job(layers, mode, 2048)
    start = time.perf_counter()
    job.step(0)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return {"layers": layers, "mode": mode, "seconds": seconds, "graphs": job.report.found}


def main() -> None:
    """Measure and print one JSON object."""
    if not torch.cuda.is_available():
        print("no CUDA device: nothing was measured")
        return
    found = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "first_step": [first_step(layers, "layers") for layers in DEPTHS],
    }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
