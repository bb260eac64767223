"""Train: how fast, in how much memory, and how soon peers train Transformer base on the CPU.

    PYTHONPATH=PEERS python benchmarks/train.py            # all: about half an hour on 2 cores
    PYTHONPATH=PEERS python benchmarks/train.py --quick    # 1 minute

PEERS are the folders into which transformers, x-transformers, fairseq and sockeye were
installed; what is not there is left out, with the reason.

The job: 6 + 6 layers, d_model 512, vocabulary 37000, batches of neighbours in length,
lengths lognormal, label smoothing 0.1, dropout 0.1, Adam.  Peers come as shipped (torch's
Adam as they call it) and in their best form (torch.compile with dynamic shapes, fused
Adam); Weft comes as `weft train` runs it.  Every contestant has a process of its own; two
peers and Weft take turns, so that a noisy machine is noisy for all.  Medians are quoted,
and the ratio to Weft in the same turns.  The ceiling is the fastest product of large
matrices that torch has for the precision, in the same turns too: what a shared machine gives
changes by the minute; FLOPs are torch's own count of the padded batch.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import torch
from contestants import CONTESTANTS, VOCAB
from torch import Tensor, nn

BATCHES = 4
TOGETHER = 2
"""Peers that are alive at a time, beside Weft: what memory allows."""
COMPILED = ("Hugging Face Marian", "x-transformers")
"""Peers of which the best form is measured: the fastest as shipped."""


def make_batches(tokens: int, seed: int = 1) -> list[tuple[Tensor, Tensor]]:
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


def shifted(target: Tensor) -> Tensor:
    """Return what a decoder reads: a beginning, and the target without its end."""
    return torch.cat((torch.full_like(target[:, :1], 3), target[:, :-1]), 1)


def weft_step(
    *, half: bool, packed: bool = False
) -> tuple[nn.Module, Callable[[Tensor, Tensor], Tensor], str]:
    """Return Weft's model, on packed rows or padded ones, its summed loss, and what it says."""
    import weft
    from weft.blocks.modules import cores, product
    from weft.graphs.head import head_of
    from weft.runtime.checked import analysed
    from weft.runtime.compile.kernels import choose_kernels
    from weft.runtime.train.memory import keep_freed_memory
    from weft.runtime.train.packing import pack
    from weft.runtime.train.projected import run_and_compare

    keep_freed_memory()
    spec = weft.load("transformer-base", vocab=VOCAB)
    model = weft.build(spec).train()
    graph, _ = analysed(spec)
    if packed:
        pack(model, graph, pad=0)
    head = head_of(graph, "logits")
    kernels = choose_kernels(torch.device("cpu"), half=half)
    product.use_product(kernels.product)
    cores.use(kernels.attention)

    def loss(source: Tensor, target: Tensor) -> Tensor:
        inputs = {"source": source, "source_keep": source != 0, "target": shifted(target)}
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            _, sums = run_and_compare(
                model, head, inputs, target, smoothing=0.1, pad=0, spread="vocabulary"
            )
        return sums.loss

    return model, loss, str(kernels)


def peer_step(
    name: str, *, half: bool, best: bool
) -> tuple[nn.Module, Callable[[Tensor, Tensor], Tensor], str]:
    """Return a peer's model, its summed loss, and what to say of it."""
    contestant = CONTESTANTS[name]
    model = contestant.build(VOCAB).train()
    called = torch.compile(model, dynamic=True) if best else model

    def loss(source: Tensor, target: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            logits = contestant.logits(called, source, source != 0, shifted(target))
        return contestant.loss(logits, target)

    return model, loss, ""


def work(pipe: Connection, name: str, *, half: bool, best: bool, threads: int) -> None:
    """Build one contestant, and make a step whenever asked."""
    if threads:
        torch.set_num_threads(threads)
    try:
        if name == "weft":
            model, loss, said = weft_step(half=half)
        else:
            model, loss, said = peer_step(name, half=half, best=best)
    except Exception as error:  # noqa: BLE001 - told, and the next one goes on
        pipe.send(("missing", f"{type(error).__name__}: {error}"))
        return
    fused = True if best or CONTESTANTS[name].fused else None
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=fused
    )
    made: dict[int, list[tuple[Tensor, Tensor]]] = {}
    pipe.send(("built", said))
    while (asked := pipe.recv()) is not None:
        tokens, turn = asked
        batches = made.setdefault(tokens, make_batches(tokens))
        source, target = batches[turn % len(batches)]
        torch.manual_seed(turn)
        start = time.perf_counter()
        lost = loss(source, target)
        count = int((target != 0).sum())
        (lost / count).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        pipe.send((seconds, count, float(lost.detach()) / count, peak))


def ceiling(*, half: bool) -> float:
    """Return the FLOP/s of the fastest product of large matrices that torch has."""
    from weft.blocks.modules import product

    a, b = (torch.randn(4096, 2048, dtype=torch.bfloat16 if half else torch.float32),) * 2
    ways: list[Callable[[], object]] = [lambda: a @ b.t()]
    if product.has_onednn():
        ways.append(lambda: product.times_transposed(a, b))
        product.use_product("onednn")
    times = []
    for way in ways:
        for _ in range(4):
            start = time.perf_counter()
            way()
            times.append(time.perf_counter() - start)
    return 2 * 4096 * 4096 * 2048 / min(times)


def flops(tokens: int) -> list[tuple[float, int]]:
    """Return the FLOPs of one step, and the target tokens, of each batch."""
    import weft
    from torch.utils.flop_counter import FlopCounterMode
    from weft.runtime.checked import analysed
    from weft.runtime.compile.build import build_empty

    model = build_empty(analysed(weft.load("transformer-base", vocab=VOCAB))[0], device="meta")
    found = []
    for source, target in make_batches(tokens):
        with FlopCounterMode(display=False) as counter:
            model(source.to("meta"), (source != 0).to("meta"), target.to("meta"))
        found.append((3.0 * counter.get_total_flops(), int((target != 0).sum())))
    return found


class Contest:
    """Some contestants that take turns."""

    def __init__(self, names: list[str], *, half: bool, best: bool, threads: int) -> None:
        """Start each in a process, one after the other, to its first step."""
        self.half, self.best = half, best
        context = multiprocessing.get_context("spawn")
        self.pipes: dict[str, Connection] = {}
        self.cold: dict[str, float] = {}
        self.peak: dict[str, float] = {}
        self.processes = []
        self.ceilings: list[float] = []
        """FLOP/s of the fastest product, in each turn of the last turns."""
        for name in names:
            here, there = context.Pipe()
            start = time.perf_counter()
            options = {"half": half, "best": best and name != "weft", "threads": threads}
            process = context.Process(target=work, args=(there, name), kwargs=options, daemon=True)
            process.start()
            there.close()  # so that the end of the process is the end of the pipe
            self.processes.append(process)
            word, said = here.recv()
            if word == "missing":
                print(f"left out: {name}: {said}", flush=True)
                continue
            if said:
                print(f"{name}: {said}", flush=True)
            try:
                here.send((2048, 0))
                here.recv()
            except (EOFError, OSError):
                print(f"left out: {name}: its first step failed", flush=True)
                continue
            self.cold[name] = time.perf_counter() - start
            self.pipes[name] = here

    def turns(self, tokens: int, rounds: int) -> dict[str, list[float]]:
        """Return target tokens per second of each contestant, turn by turn."""
        speeds: dict[str, list[float]] = {name: [] for name in self.pipes}
        self.ceilings = []
        warm = BATCHES if self.best else 0  # what is compiled is so again for some shapes
        for turn in range(-warm, rounds):
            self.ceilings.append(ceiling(half=self.half))
            for name, pipe in list(self.pipes.items()):
                try:
                    pipe.send((tokens, turn + 1 + BATCHES))
                    seconds, count, _, self.peak[name] = pipe.recv()
                except (EOFError, OSError):  # such as one that the system killed for its memory
                    print(f"left out: {name}: it died at {tokens} tokens", flush=True)
                    del self.pipes[name]
                    continue
                if turn >= 0:
                    speeds[name].append(count / seconds)
        return {name: found for name, found in speeds.items() if name in self.pipes}

    def end(self) -> None:
        """Let them go."""
        for pipe in self.pipes.values():
            pipe.send(None)
        for process in self.processes:
            process.join()


def groups(names: list[str]) -> Iterator[list[str]]:
    """Yield Weft with a few peers at a time."""
    for start in range(0, len(names), TOGETHER):
        yield ["weft", *names[start : start + TOGETHER]]


def main() -> None:
    """Run all contestants in turns and print tables."""
    from weft.runtime.processor import processor_name

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--precision", nargs="*", default=["bfloat16", "float32"])
    parser.add_argument("--tokens", nargs="*", type=int, default=[2048, 4096])
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contestant")
    parser.add_argument("--threads", type=int, default=0, help="0 is torch's choice")
    parser.add_argument("--only", nargs="*", default=[n for n in CONTESTANTS if n != "weft"])
    parser.add_argument("--forms", nargs="*", default=["shipped", "best"])
    parser.add_argument("--quick", action="store_true", help="bfloat16, 2048 tokens, Marian alone")
    options = parser.parse_args()
    if options.quick:
        options.precision, options.tokens = ["bfloat16"], [2048]
        options.only, options.forms = ["Hugging Face Marian"], ["shipped"]
    if options.threads:
        torch.set_num_threads(options.threads)
    rows: list[dict[str, Any]] = []
    work_of = {tokens: flops(tokens) for tokens in options.tokens}
    print(f"{processor_name()}, torch {torch.__version__}", flush=True)
    for precision in options.precision:
        for form in options.forms:
            best = form == "best"
            peers = [n for n in options.only if not best or n in COMPILED]
            sizes = options.tokens[:1] if best else options.tokens
            for names in groups(peers):
                contest = Contest(
                    names, half=precision == "bfloat16", best=best, threads=options.threads
                )
                for tokens in sizes:
                    speeds = contest.turns(tokens, options.rounds)
                    top = statistics.median(contest.ceilings)
                    print(f"{precision}: ceiling {top / 1e9:.0f} GFLOP/s", flush=True)
                    mean = statistics.mean(f / t for f, t in work_of[tokens])
                    ours = statistics.median(speeds.get("weft", [math.nan]))
                    for name, found in speeds.items():
                        median = statistics.median(found)
                        rows.append(
                            {
                                "precision": precision,
                                "form": "weft train" if name == "weft" else form,
                                "name": name,
                                "tokens": tokens,
                                "median": median,
                                "speeds": found,
                                "ratio": ours / median,
                                "share": median * mean / top,
                                "peak": contest.peak[name],
                                "cold": contest.cold[name],
                            }
                        )
                        print(line(rows[-1]), flush=True)
                contest.end()
    print(f"\n{table(rows)}\n\n{json.dumps(rows)}")


def line(row: dict[str, Any]) -> str:
    """Return one row of the table."""
    speeds = row["speeds"]
    cells = (
        row["precision"],
        str(row["tokens"]),
        row["name"],
        row["form"],
        f"{row['median']:.0f}",
        f"{min(speeds):.0f} to {max(speeds):.0f}",
        f"{row['ratio']:.2f}",
        f"{100 * row['share']:.0f}",
        f"{row['peak']:.0f}",
        f"{row['cold']:.0f}",
    )
    return f"| {' | '.join(cells)} |"


def table(rows: list[dict[str, Any]]) -> str:
    """Return all rows as a table."""
    head = (
        "| | tokens | | form | target tokens/s (median) | range | Weft is x times as fast"
        " | % of ceiling | peak MB | cold start s |"
    )
    return "\n".join([head, "|---" * 10 + "|", *map(line, rows)])


if __name__ == "__main__":
    main()
