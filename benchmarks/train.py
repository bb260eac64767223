"""Compare training speed, memory and start-up of Transformer base with peers.

    PYTHONPATH=PEERS python benchmarks/train.py            # all: about half an hour on 2 cores
    PYTHONPATH=PEERS python benchmarks/train.py --quick    # 1 minute
    PYTHONPATH=PEERS python benchmarks/train.py --device cuda --sizes base big --tokens 25000

PEERS are the folders into which transformers, x-transformers, fairseq, sockeye and eole were
installed; a peer that is missing is left out, with the reason.

The job: 6 + 6 layers, d_model 512, vocabulary 37000, batches of sentences of similar length,
lengths lognormal, label smoothing 0.1, dropout 0.1, Adam.  Peers run as shipped (torch's Adam as
they call it) and in their best form (torch.compile with dynamic shapes, fused Adam); Weft runs as
in `weft train`.  Every contestant has its own process; two peers and Weft take turns, so that
noise of the machine affects all of them.  Medians are reported, with the ratio to Weft in the
same turns.  MFU is relative to the fastest product of large matrices in torch for the precision,
measured in the same turns, because the speed of a shared machine changes by the minute; FLOPs are
torch's own count for the padded batch.

On CUDA, Weft is compiled as in `weft train`, and also runs on unpadded rows with the
variable-length kernel; peers are compiled, and the default precision is bfloat16.
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import torch
from contestants import CONTESTANTS
from peers import BASE, BIG, Size
from results import add_rows_option, is_late, wait_for_turn, write_row
from torch import Tensor, nn

BATCHES = 4
UNPADDED = "weft, unpadded"
SIZES = {
    "base": BASE,
    "big": BIG,
    "small": Size(256, 4, 1024, 0.1, vocab=10_000),
    "tiny": Size(128, 4, 256, 0.3, layers=4, vocab=10_000),
    "gpt2": Size(768, 12, 3072, 0.1, layers=12, vocab=50_257, spec="gpt2"),
    "trial": Size(64, 4, 128, 0.1),
    "trial-gpt2": Size(64, 4, 256, 0.1, layers=2, vocab=1000, spec="gpt2"),
}
"""Sizes of the paper, of small corpora (`tiny` is `transformer-tiny`) and of GPT-2 small; those of
trials are for trying out the benchmark."""
ON_GPU = ("torch.nn.Transformer", "Hugging Face Marian", "Eole")
"""Peers that this benchmark can run on a GPU."""
SIZED = (*ON_GPU, "x-transformers")
"""Peers that this benchmark builds in other sizes than base."""
LANGUAGE_MODELS = ("Hugging Face GPT-2",)
"""Peers of GPT-2, on any device."""
ROW = 1024
"""Tokens of a row of a language model."""
TOGETHER = 2
"""Peers that run at the same time on a CPU, in addition to Weft; limited by memory."""
PREPARING = 8
"""Batches of the preparation are smaller by this factor, since others may prepare beside it."""
COMPILED = ("Hugging Face Marian", "x-transformers")
"""Peers whose best form is measured: the fastest as shipped."""


@dataclass(frozen=True)
class How:
    """Training settings of a contestant."""

    half: bool
    best: bool
    threads: int
    device: str = "cpu"
    size: Size = BASE


def make_batches(tokens: int, size: Size = BASE, seed: int = 1) -> list[tuple[Tensor, Tensor]]:
    """Return batches of about `tokens` target tokens each, padding 0.

    Lengths are lognormal with a mean of about 30, as in sentences; each batch has sentences of
    similar length.  A language model gets full rows, and sources that it does not read.
    """
    generator, vocab = torch.Generator().manual_seed(seed), size.vocab
    if size.spec == "gpt2":
        row = min(tokens, ROW)
        shape = (BATCHES, tokens // row, row)
        return [(ids, ids) for ids in torch.randint(4, vocab, shape, generator=generator)]
    times = max(1, tokens // 4096)  # larger batches need more sentences to choose from
    lengths = torch.empty(4000 * times).log_normal_(3.25, 0.55, generator=generator)
    ordered = lengths.long().clamp(4, 100).sort().values
    batches = []
    for part in range(BATCHES):
        start = (400 + part * 900) * times
        rows = max(1, tokens // int(ordered[start]))
        target_lengths = ordered[start : start + rows]
        source_lengths = (target_lengths.float() * 0.94).long().clamp(min=3)
        made = []
        for lengths_ in (source_lengths, target_lengths):
            ids = torch.randint(4, vocab, (len(lengths_), int(lengths_.max())), generator=generator)
            past = torch.arange(ids.size(1)) >= lengths_[:, None]
            made.append(ids.masked_fill(past, 0))
        batches.append((made[0], made[1]))
    return batches


def inputs_of(size: Size, source: Tensor, target: Tensor) -> dict[str, Tensor]:
    """Return the inputs of Weft's model."""
    if size.spec == "gpt2":
        return {"tokens": shifted(target)}
    return {"source": source, "source_mask": source != 0, "target": shifted(target)}


def shifted(target: Tensor) -> Tensor:
    """Return the decoder input: a begin token and the target without its last token."""
    return torch.cat((torch.full_like(target[:, :1], 3), target[:, :-1]), 1)


def weft_step(
    how: How, *, unpadded: bool = False
) -> tuple[nn.Module, Callable[[Tensor, Tensor], Tensor], str]:
    """Return Weft's model, its summed loss, and a description of its choices."""
    import weft
    from fused_loss import fused_loss
    from weft.blocks.kernels.unpad import non_padding
    from weft.graphs.passes.fuse import leave_projection
    from weft.graphs.passes.pipeline import PassSettings, after
    from weft.runtime.compile.autotune import choose_kernels
    from weft.runtime.spec.check import graph_of
    from weft.runtime.system.memory import keep_freed_memory

    keep_freed_memory()
    spec = weft.load(how.size.spec, **how.size.params())
    on_gpu = how.device != "cpu"
    kernels = choose_kernels(
        torch.device(how.device),
        half=how.half,
        attention_kernel="varlen" if unpadded and on_gpu else "auto",
    )
    settings = PassSettings(
        unpad=unpadded,
        kernels=kernels.choice,
        precision="bfloat16" if how.half else "float32",
    )
    graph = leave_projection(after(graph_of(spec), settings))
    model = weft.build(graph, device=how.device).train()
    (head,) = graph.execution.deferred
    note = str(kernels)
    if on_gpu:
        note = f"{note}; {weft.compile(model, 'layers')}"
    known: dict[int, dict[str, int]] = {}

    def loss(source: Tensor, target: Tensor) -> Tensor:
        inputs = inputs_of(how.size, source, target)
        if id(target) not in known:  # there are few batches, and they are kept, so ids are stable
            masks = {
                "source_mask": source != 0,
                "target": non_padding(inputs.get("target", target), 0),
            }
            known[id(target)] = {name: int(mask.sum()) for name, mask in masks.items()}
        with torch.autocast(how.device, torch.bfloat16, enabled=how.half):
            return fused_loss(model, head, inputs, target, known[id(target)])

    return model, loss, note


def peer_step(name: str, how: How) -> tuple[nn.Module, Callable[[Tensor, Tensor], Tensor], str]:
    """Return a peer's model, its summed loss, and an empty description."""
    contestant = CONTESTANTS[name]
    model = contestant.build(how.size).to(how.device).train()
    called = torch.compile(model, dynamic=True) if how.best else model

    def loss(source: Tensor, target: Tensor) -> Tensor:
        with torch.autocast(how.device, torch.bfloat16, enabled=how.half):
            logits = contestant.logits(called, source, source != 0, shifted(target))
        return contestant.loss(logits, target)

    return model, loss, ""


def work(pipe: Connection, name: str, how: How) -> None:
    """Build a contestant on the first request from the pipe, and make a step on each later one."""
    if how.threads:
        torch.set_num_threads(how.threads)
    pipe.recv()
    try:
        if name.startswith("weft"):
            model, loss, note = weft_step(how, unpadded=name == UNPADDED)
        else:
            model, loss, note = peer_step(name, how)
    except Exception as error:  # noqa: BLE001 - reported; the next contestant continues
        pipe.send(("missing", f"{type(error).__name__}: {error}"))
        return
    own = name.startswith("weft")
    fused = True if how.best or own or CONTESTANTS[name].fused else None
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=fused
    )
    made: dict[int, list[tuple[Tensor, Tensor, int]]] = {}
    pipe.send(("built", note))
    while (requested := pipe.recv()) is not None:
        tokens, turn = requested
        if not tokens:  # others measure next
            made.clear()
            torch.cuda.empty_cache()
            pipe.send(None)
            continue
        if tokens not in made:
            made[tokens] = [
                (source.to(how.device), target.to(how.device), int((target != 0).sum()))
                for source, target in make_batches(tokens, how.size)
            ]
        source, target, count = made[tokens][turn % BATCHES]
        torch.manual_seed(turn)
        finished(how.device)
        start, worked = time.perf_counter(), time.process_time()
        lost = loss(source, target)
        (lost / count).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        finished(how.device)
        seconds, worked = time.perf_counter() - start, time.process_time() - worked
        pipe.send((seconds, count, worked, peak(how.device)))


def finished(device: str) -> None:
    """Wait until a device has finished its queued work."""
    if device != "cpu":
        torch.cuda.synchronize()


def peak(device: str) -> float:
    """Return the peak memory of this process in MB, on the device or in RAM."""
    if device != "cpu":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def peak_flops(how: How) -> float:
    """Return the peak FLOP/s: the fastest product of large matrices in torch."""
    from weft.blocks.kernels import linear as product

    rows, inner = (4096, 2048) if how.device == "cpu" else (8192, 8192)
    dtype = torch.bfloat16 if how.half else torch.float32
    a, b = (torch.randn(rows, inner, dtype=dtype, device=how.device),) * 2
    ways: list[Callable[[], object]] = [lambda: a @ b.t()]
    if how.device == "cpu" and product.has_onednn():
        ways.append(lambda: product.times_transposed(a, b, "onednn"))
    times = []
    for way in ways:
        for _ in range(4):
            finished(how.device)
            start = time.perf_counter()
            way()
            finished(how.device)
            times.append(time.perf_counter() - start)
    return 2 * rows * rows * inner / min(times)


def flops(batches: Sequence[tuple[Tensor, Tensor]], size: Size = BASE) -> list[tuple[float, int]]:
    """Return the FLOPs of one step and the number of target tokens, for each batch."""
    import weft
    from torch.utils.flop_counter import FlopCounterMode
    from weft.runtime.codegen.build import build_empty
    from weft.runtime.spec.check import graph_of

    spec = weft.load(size.spec, **size.params())
    model = build_empty(graph_of(spec), device="meta")
    found = []
    for source, target in batches:
        with FlopCounterMode(display=False) as counter:
            model(**inputs_of(size, source.to("meta"), target.to("meta")))
        found.append((3.0 * counter.get_total_flops(), int((target != 0).sum())))
    return found


class Contest:
    """Several contestants that take turns."""

    def __init__(self, names: list[str], how: How) -> None:
        """Start each contestant in its own process, up to its first step.

        On a GPU all compile at the same time, which takes most of it; they are built one after the
        other, since Weft then measures kernels.
        """
        self.how = how
        context = multiprocessing.get_context("spawn")
        self.pipes: dict[str, Connection] = {}
        self.cold: dict[str, float] = {}
        self.peak: dict[str, float] = {}
        self.processes = []
        self.peaks: list[float] = []
        """Peak FLOP/s, measured in each turn of the last call of `turns`."""
        self.worked: dict[str, list[float]] = {}
        """CPU seconds of each update of the last call of `turns`, of all threads."""
        entering: dict[str, Connection] = {}
        for name in names:
            here, there = context.Pipe()
            own = replace(how, best=how.best and not name.startswith("weft"))
            process = context.Process(target=work, args=(there, name, own), daemon=True)
            self.cold[name] = -time.perf_counter()
            process.start()
            there.close()  # so that the pipe closes when the process ends
            self.processes.append(process)
            entering[name] = here
            if how.device == "cpu" or name == names[-1]:
                self._enter(entering)
                entering = {}

    def _enter(self, entering: dict[str, Connection]) -> None:
        """Let contestants build their models and make a step; leave out those that cannot."""
        built = []
        for name, pipe in entering.items():
            try:
                pipe.send("build")
                word, note = pipe.recv()
                if word == "missing":
                    print(f"left out: {name}: {note}", flush=True)
                    continue
            except (EOFError, OSError):
                print(f"left out: {name}: its process ended", flush=True)
                continue
            if note:
                print(f"{name}: {note}", flush=True)
            built.append(name)
        for name in built:
            entering[name].send((2048, 0))
        for name in built:
            try:
                entering[name].recv()
            except (EOFError, OSError):
                print(f"left out: {name}: its first step failed", flush=True)
                continue
            self.cold[name] += time.perf_counter()
            self.pipes[name] = entering[name]

    def prepare(self, tokens: int) -> None:
        """Compile for the shapes of all batches, all contestants at the same time."""
        for step in [(max(1, tokens // PREPARING), turn) for turn in range(BATCHES)] + [(0, 0)]:
            for name in list(self.pipes):
                try:
                    self.pipes[name].send(step)
                except OSError:
                    self._drop(name, step[0])
            for name in list(self.pipes):
                try:
                    self.pipes[name].recv()
                except (EOFError, OSError):
                    self._drop(name, step[0])

    def _drop(self, name: str, tokens: int) -> None:
        """Leave out a contestant that the system killed, for example because of its memory."""
        print(f"left out: {name}: its process died at {tokens} tokens", flush=True)
        del self.pipes[name]

    def turns(self, tokens: int, rounds: int) -> Iterator[dict[str, list[float]]]:
        """Yield target tokens per second of each contestant so far, after each turn."""
        speeds: dict[str, list[float]] = {name: [] for name in self.pipes}
        self.peaks, self.worked = [], {name: [] for name in self.pipes}
        warm = BATCHES if self.how.best else 0  # torch.compile recompiles for some shapes
        for turn in range(-warm, rounds):
            self.peaks.append(peak_flops(self.how))
            for name, pipe in list(self.pipes.items()):
                try:
                    pipe.send((tokens, turn + 1 + BATCHES))
                    seconds, count, worked, self.peak[name] = pipe.recv()
                except (EOFError, OSError):
                    self._drop(name, tokens)
                    continue
                if turn >= 0:
                    speeds[name].append(count / seconds)
                    self.worked[name].append(worked)
            if turn >= 0:
                yield {name: speeds[name] for name in self.pipes}

    def end(self) -> None:
        """End all processes."""
        for pipe in self.pipes.values():
            pipe.send(None)
        for process in self.processes:
            process.join()


def groups(names: Sequence[str], ours: list[str], together: int) -> Iterator[list[str]]:
    """Yield groups of Weft and a few peers."""
    for start in range(0, max(1, len(names)), together):
        yield [*ours, *names[start : start + together]]


def main() -> None:
    """Run all contestants in turn and print tables."""
    from weft.blocks.kernels.processor import FAST_BFLOAT16, has, processor_name

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sizes", nargs="*", choices=SIZES, default=["base"])
    parser.add_argument(
        "--precision", nargs="*", help="default: bfloat16 if fast, on the CPU also float32"
    )
    parser.add_argument("--tokens", nargs="*", type=int, default=[2048, 4096])
    parser.add_argument(
        "--rounds", type=int, default=3, help="measured turns per contestant (default: %(default)s)"
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=0,
        help="number of CPU threads; 0 is torch's default (default: %(default)s)",
    )
    parser.add_argument("--only", nargs="*", help="names of peers (default: all available)")
    parser.add_argument(
        "--forms", nargs="*", help="shipped, best (default: both; on CUDA only best)"
    )
    add_rows_option(parser)
    parser.add_argument("--unpadded", action="store_true", help="also train Weft on unpadded rows")
    parser.add_argument("--quick", action="store_true", help="one precision, 2048 tokens, Marian")
    options = parser.parse_args()
    on_gpu = options.device != "cpu"
    if on_gpu and not torch.cuda.is_available():
        print("no CUDA device: nothing was measured")
        return
    if options.quick:
        options.tokens = [2048]
        options.only, options.forms = ["Hugging Face Marian"], ["shipped"]
    fast = "bfloat16" if on_gpu or has(*FAST_BFLOAT16) else "float32"
    both = not on_gpu and not options.quick
    precisions = options.precision or ([*dict.fromkeys((fast, "float32"))] if both else [fast])
    all_peers = [n for n in CONTESTANTS if n != "weft"]
    sized = SIZED if options.sizes != ["base"] else all_peers
    peers = options.only or (ON_GPU if on_gpu else sized)
    ours = ["weft", UNPADDED] if on_gpu or options.unpadded else ["weft"]
    if options.threads:
        torch.set_num_threads(options.threads)
    machine = torch.cuda.get_device_name() if on_gpu else processor_name()
    print(f"{machine}, torch {torch.__version__}", flush=True)
    rows: list[dict[str, Any]] = []
    for size, precision, form in itertools.product(
        options.sizes, precisions, options.forms or (["best"] if on_gpu else ["shipped", "best"])
    ):
        best, half = form == "best", precision == "bfloat16"
        how = How(half, best, options.threads, options.device, SIZES[size])
        entering = [n for n in peers if not best or n in COMPILED or on_gpu]
        entering = [*LANGUAGE_MODELS] if how.size.spec == "gpt2" else entering
        entrants = ours if how.size.spec != "gpt2" else ours[:1]
        for names in groups(entering, entrants, max(1, len(entering)) if on_gpu else TOGETHER):
            rows += meet(names, how, options, (size, precision, form))
    print(f"\n{table(rows)}")


def meet(
    names: list[str], how: How, options: argparse.Namespace, note: tuple[str, str, str]
) -> list[dict[str, Any]]:
    """Let contestants take turns, and return a row of results for each."""
    contest, rows = Contest(names, how), []
    for tokens in options.tokens[:1] if how.best else options.tokens:
        batches = make_batches(tokens, how.size)
        mean = statistics.mean(f / t for f, t in flops(batches, how.size))
        if options.in_turn:
            contest.prepare(tokens)
            wait_for_turn(options)
        of_tokens: list[dict[str, Any]] = []
        for speeds in contest.turns(tokens, options.rounds):
            of_tokens = list(rows_of(contest, speeds, tokens, mean, note))
            for row in of_tokens:
                write_row(options.rows, row)
            if is_late(options.seconds):
                break
        print(f"{note[1]}: peak {statistics.median(contest.peaks) / 1e9:.0f} GFLOP/s", flush=True)
        print("\n".join(map(line, of_tokens)), flush=True)
        rows += of_tokens
    contest.end()
    return rows


def rows_of(
    contest: Contest,
    speeds: dict[str, list[float]],
    tokens: int,
    mean: float,
    note: tuple[str, str, str],
) -> Iterator[dict[str, Any]]:
    """Yield a row of results for each contestant, from FLOPs per token and the turns so far."""
    size, precision, form = note
    ours, top = statistics.median(speeds.get("weft", [math.nan])), statistics.median(contest.peaks)
    for name, measured in speeds.items():
        median = statistics.median(measured)
        yield {
            "precision": precision if size == "base" else f"{size}, {precision}",
            "form": "weft train" if name.startswith("weft") else form,
            "name": name,
            "tokens": tokens,
            "median": median,
            "speeds": measured,
            "ratio": ours / median,
            "share": median * mean / top,
            "cpu": statistics.median(contest.worked[name]),
            "peak": contest.peak[name],
            "cold": contest.cold[name],
        }


def line(row: dict[str, Any]) -> str:
    """Return a row as a line of the table."""
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
        f"{row['cpu']:.2f}",
        f"{row['peak']:.0f}",
        f"{row['cold']:.0f}",
    )
    return f"| {' | '.join(cells)} |"


def table(rows: list[dict[str, Any]]) -> str:
    """Return all rows as a table."""
    head = (
        "| | tokens | | form | target tokens/s (median) | range | Weft is x times as fast"
        " | MFU % | CPU s an update | peak MB | cold start s |"
    )
    return "\n".join([head, "|---" * 11 + "|", *map(line, rows)])


if __name__ == "__main__":
    main()
