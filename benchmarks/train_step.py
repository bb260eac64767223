"""Train step: tokens per second and peak memory of Transformer base, against two peers.

    python benchmarks/train_step.py --precision float32 --tokens 2048 --rounds 5

Every contestant lives in a process of its own; they take turns on the same batches, so
that a noisy machine is noisy for all.  All use Adam with one fused kernel and label
smoothing 0.1.  Medians are quoted, and ratios to the better peer.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import resource
import statistics
import time
from multiprocessing.connection import Connection
from typing import Any

import torch
from contestants import CONTESTANTS

VOCAB = 37_000
BATCHES = 4


def make_batches(tokens: int, seed: int = 1) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return batches of like length, about `tokens` target tokens each, padding 0.

    Lengths are lognormal with a mean of about 30, as in sentences; each batch holds
    neighbours in length.
    """
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.empty(4000).log_normal_(3.25, 0.55, generator=generator).long().clamp(4, 100)
    ordered = lengths.sort().values
    batches = []
    for part in range(BATCHES):
        start = 400 + part * 900
        rows = max(1, tokens // int(ordered[start]))
        target_lengths = ordered[start : start + rows]
        source_lengths = (target_lengths.float() * 0.94).long().clamp(min=3)
        made = []
        for lengths_ in (source_lengths, target_lengths):
            ids = torch.randint(4, VOCAB, (len(lengths_), int(lengths_.max())), generator=generator)
            past = torch.arange(ids.size(1)) >= lengths_[:, None]
            made.append(ids.masked_fill(past, 0))
        batches.append((made[0], made[1]))
    return batches


def work(pipe: Connection, name: str, options: argparse.Namespace) -> None:
    """Build one contestant and run a step whenever asked."""
    if options.threads:
        torch.set_num_threads(options.threads)
    contestant = CONTESTANTS[name]
    start = time.perf_counter()
    model = contestant.build(VOCAB).train()
    built = time.perf_counter() - start
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True
    )
    batches = make_batches(options.tokens)
    half = options.precision == "bfloat16"
    pipe.send(("built", built, sum(p.numel() for p in model.parameters())))
    while (index := pipe.recv()) is not None:
        source, target = batches[index % len(batches)]
        torch.manual_seed(index)
        start = time.perf_counter()
        shifted = torch.cat((torch.full_like(target[:, :1], 3), target[:, :-1]), 1)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            logits = contestant.logits(model, source, source != 0, shifted)
        tokens = int((target != 0).sum())
        loss = contestant.loss(logits, target)
        (loss / tokens).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        pipe.send((seconds, tokens, float(loss.detach()) / tokens, peak))


def main() -> None:
    """Run all contestants in turn and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--tokens", type=int, default=2048, help="target tokens in a batch")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contestant")
    parser.add_argument("--threads", type=int, default=0, help="0 is torch's choice")
    parser.add_argument("--only", nargs="*", default=list(CONTESTANTS))
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    workers: dict[str, Any] = {}
    for name in options.only:
        here, there = context.Pipe()
        process = context.Process(target=work, args=(there, name, options), daemon=True)
        process.start()
        _, built, parameters = here.recv()
        workers[name] = {"pipe": here, "built": built, "parameters": parameters, "speeds": []}
    for turn in range(options.rounds + 1):
        for worker in workers.values():
            worker["pipe"].send(turn)
            seconds, tokens, loss, peak = worker["pipe"].recv()
            if turn:  # the first turn warms up
                worker["speeds"].append(tokens / seconds)
            worker |= {"loss": loss, "peak": peak}
    peers = [statistics.median(w["speeds"]) for n, w in workers.items() if n != "weft"]
    best = max(peers, default=float("nan"))
    print(
        f"{platform.processor() or platform.machine()}, torch {torch.__version__}, "
        f"{options.precision}, about {options.tokens} target tokens, {options.rounds} rounds"
    )
    print("| | target tokens/s (median) | range | to the better peer | peak MB | build s |")
    print("|---|---|---|---|---|---|")
    rows = []
    for name, worker in workers.items():
        speeds = worker["speeds"]
        median = statistics.median(speeds)
        cells = (
            name,
            f"{median:.0f}",
            f"{min(speeds):.0f} to {max(speeds):.0f}",
            f"{median / best:.2f}",
            f"{worker['peak']:.0f}",
            f"{worker['built']:.2f}",
        )
        print(f"| {' | '.join(cells)} |")
        rows.append(
            {
                "name": name,
                "median": median,
                "speeds": speeds,
                "peak": worker["peak"],
                "built": worker["built"],
                "loss": worker["loss"],
            }
        )
        worker["pipe"].send(None)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
