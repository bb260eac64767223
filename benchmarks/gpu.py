"""GPU: compile time against depth, and the train step of Transformer base at full batch.

    python benchmarks/gpu.py

Needs CUDA; says so and stops without it.  The ceiling is a bfloat16 matrix product of
8192 x 8192 x 8192, measured in the same run; FLOPs are torch's own count of the step.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import torch
import weft
from torch.utils.flop_counter import FlopCounterMode
from train import VOCAB, make_batches
from weft.runtime.train.loss import label_smoothed

TOKENS = 25_000
DEPTHS = (6, 24)
STEPS = 20


def ceiling() -> float:
    """Return the FLOP/s of a large bfloat16 product of random matrices."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    times = []
    for _ in range(10):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        a @ b
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return 2 * 8192**3 / statistics.median(times)


class Job:
    """One model with its optimizer and batches on the GPU."""

    def __init__(self, layers: int, mode: str, tokens: int) -> None:
        """Build, and compile as asked."""
        spec = weft.load("transformer-base", layers=layers, vocab=VOCAB)
        self.model = weft.build(spec, device="cuda").train()
        self.report = weft.compile(self.model, mode)  # type: ignore[arg-type]
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, fused=True)
        self.batches = [tuple(ids.cuda() for ids in pair) for pair in make_batches(tokens)]

    def step(self, index: int) -> int:
        """Make one update; return its target tokens."""
        source, target = self.batches[index % len(self.batches)]
        shifted = torch.cat((torch.full_like(target[:, :1], 3), target[:, :-1]), 1)
        with torch.autocast("cuda", torch.bfloat16):
            logits = self.model(source, source != 0, shifted)["logits"]
        loss = label_smoothed(logits, target, smoothing=0.1, pad=0)
        (loss.loss / loss.tokens).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return int((target != 0).sum())


def first_step(layers: int, mode: str) -> dict[str, Any]:
    """Return the seconds until the first update is done, and the graphs it took."""
    torch._dynamo.reset()  # noqa: SLF001 - each depth starts cold
    job = Job(layers, mode, 2048)
    start = time.perf_counter()
    job.step(0)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return {"layers": layers, "mode": mode, "seconds": seconds, "graphs": job.report.found}


def full_step(mode: str) -> dict[str, Any]:
    """Return tokens per second, FLOP/s and peak memory at the paper's batch."""
    torch._dynamo.reset()  # noqa: SLF001 - each mode starts cold
    flops = []
    if mode == "eager":
        job = Job(6, mode, TOKENS)
        for index in range(len(job.batches)):
            with FlopCounterMode(display=False) as counter:
                job.step(index)
            flops.append(counter.get_total_flops())
    job = Job(6, mode, TOKENS)
    for index in range(len(job.batches)):
        job.step(index)
    torch.cuda.reset_peak_memory_stats()
    speeds = []
    for index in range(STEPS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        tokens = job.step(index)
        torch.cuda.synchronize()
        speeds.append((tokens / (time.perf_counter() - start), tokens, index))
    median = statistics.median(speed for speed, _, _ in speeds)
    mean_flops = statistics.mean(flops) if flops else float("nan")
    mean_tokens = statistics.mean(tokens for _, tokens, _ in speeds)
    return {
        "mode": mode,
        "target_tokens_per_second": median,
        "flops_per_target_token": mean_flops / mean_tokens,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
        "graphs": job.report.found,
        "expected": job.report.expected,
    }


def main() -> None:
    """Measure and print one JSON object."""
    if not torch.cuda.is_available():
        print("no CUDA device: nothing was measured")
        return
    top = ceiling()
    rows = [full_step(mode) for mode in ("eager", "layers")]
    per_token = rows[0]["flops_per_target_token"]
    for row in rows:
        row["flops_per_target_token"] = per_token
        row["share_of_ceiling"] = row["target_tokens_per_second"] * per_token / top
    found = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "ceiling_tflops": top / 1e12,
        "first_step": [first_step(layers, "layers") for layers in DEPTHS],
        "train_step": rows,
    }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
