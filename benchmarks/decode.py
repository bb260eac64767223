"""Measure sentences per second of Transformer base, greedy and with a beam, against peers.

    python benchmarks/decode.py --rounds 5 --threads 2
    python benchmarks/decode.py --device cuda --only "weft bfloat16" "Hugging Face bfloat16"
    python benchmarks/decode.py --generate --sentences 1 --length 64

64 sources of 32 tokens, vocabulary 37,000, random weights, outputs of exactly 32 tokens.  Every
contestant runs in its own process and decodes all sentences in one batch; contestants take turns,
so that noise of the machine affects all of them.  Medians and ratios to CTranslate2 in float32
are reported.  A peer that is not installed is left out, with the reason.  At the end, the size of
Weft's decoding state is compared with `weft cost`.

MFU is relative to the fastest product of large matrices in float32 or bfloat16, measured in every
turn as in `train.py`; FLOPs are torch's own count for the padded batch, with stored keys and
values.  Contestants in int8 and those with a shortlist have none: their products are others.

`--generate` measures GPT-2 small instead, whose sources are prompts and which decodes greedily.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from decoders import DECODERS, Decode, Work
from generators import GENERATORS
from results import add_rows_option, turns, wait_for_turn, write_row
from train import How, peak_flops

VOCAB = 37_000
YARDSTICK = "CTranslate2 float32"
PAUSE = 0.3
"""Seconds between turns, for the threads of the last contestant to stop spinning."""


def sources_of(options: argparse.Namespace) -> list[list[int]]:
    """Return sources of one length, or of lengths spread uniformly around it."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.full((options.sentences,), options.length)
    if options.spread:
        lengths += torch.randint(
            -options.spread, options.spread + 1, lengths.shape, generator=generator
        )
    # The last id is padding for some peers.
    return [
        torch.randint(4, VOCAB - 1, (int(n),), generator=generator).tolist()
        for n in lengths.clamp(min=2)
    ]


def megabytes() -> float:
    """Return the peak memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def contestants(options: argparse.Namespace) -> Mapping[str, Callable[[Work, Path], Decode]]:
    """Return the contestants by name."""
    return GENERATORS if options.generate else DECODERS


def serve(pipe: Connection, name: str, options: argparse.Namespace) -> None:
    """Build one contestant, and decode on each request from the pipe."""
    torch.set_num_threads(options.threads)
    sources = sources_of(options)
    with tempfile.TemporaryDirectory() as folder:
        try:
            work = Work(VOCAB, options.length, options.threads, options.device)
            decode = contestants(options)[name](work, Path(folder))
            decode(sources[:2], 2)
        except Exception as error:  # noqa: BLE001 - a peer that raises anything cannot take part
            pipe.send(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
            return
    pipe.send(None)
    while (beam := pipe.recv()) is not None:
        start, worked = time.perf_counter(), time.process_time()
        found = decode(sources, beam)  # tokens are read, so the device has finished
        seconds, worked = time.perf_counter() - start, time.process_time() - worked
        shortest, longest = min(map(len, found)), max(map(len, found))
        # Some outputs do not include the end token, which may be the last token.
        if longest > options.length or shortest < options.length - 1:
            msg = f"{name} gave {shortest} to {longest} tokens, not {options.length}"
            raise ValueError(msg)
        pipe.send((seconds, worked, megabytes()))


def started(options: argparse.Namespace) -> Iterator[tuple[str, Connection]]:
    """Start a process for each contestant that can take part; on a GPU all at the same time."""
    context = multiprocessing.get_context("spawn")

    def start(name: str) -> tuple[str, Connection]:
        here, there = context.Pipe()
        context.Process(target=serve, args=(there, name, options), daemon=True).start()
        return name, here

    starting = map(start, options.only or contestants(options))
    for name, here in starting if options.device == "cpu" else list(starting):
        reason = here.recv()
        if reason is None:
            yield name, here
        else:
            print(f"left out: {name}: {reason}", flush=True)


def precision_of(name: str) -> str | None:
    """Return the precision of a contestant's products; None if they are not all in floats."""
    return None if "int8" in name or "shortlist" in name else name.rsplit(maxsplit=1)[-1]


def flops(options: argparse.Namespace, beam: int) -> float:
    """Return the FLOPs of decoding all sentences once."""
    import weft
    from torch.utils.flop_counter import FlopCounterMode
    from weft.blocks.kernels.decode_state import Capacity
    from weft.runtime.codegen.build import build_empty
    from weft.runtime.spec.check import graph_of

    spec = weft.load("gpt2" if options.generate else "transformer-base", vocab=VOCAB)
    model: Any = build_empty(graph_of(spec), device="meta").eval()
    widest = max(map(len, sources_of(options)))
    source = torch.ones(options.sentences, widest, dtype=torch.long, device="meta")
    inputs, first = {"source": source, "source_mask": source > 0}, 0
    moving, counter = "target", FlopCounterMode(display=False)
    if options.generate:  # all of the prompt but its last token is read before the first step
        inputs, moving, first = {}, "tokens", widest - 1
    length = first + options.length
    capacity = Capacity(options.sentences, beam, length, torch.float32, torch.device("meta"))
    with torch.inference_mode(), counter:
        state = model.begin(capacity, **inputs)
        if first:
            model.read_prompt(**{moving: source[:, :first]}, state=state, position=0)
        token = source[:, :1].repeat(beam, 1)
        for position in range(first, length):
            model.step(**{moving: token}, state=state, position=position)
    return float(counter.get_total_flops())


def race(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Let all contestants decode in turn for every beam; return their times."""
    pipes, rows = dict(started(options)), []
    precisions = dict.fromkeys(filter(None, map(precision_of, pipes)))
    torch.set_num_threads(options.threads)
    operations = {beam: flops(options, beam) for beam in options.beams}
    if options.in_turn:  # all contestants see the shapes of every beam, at the same time
        for beam in options.beams:
            for pipe in pipes.values():
                pipe.send(beam)
            for pipe in pipes.values():
                pipe.recv()
        wait_for_turn(options)
    for number, beam in enumerate(options.beams, 1):
        peaks: dict[str, list[float]] = {name: [] for name in precisions}
        of_beam: list[dict[str, Any]] = []
        times: dict[str, list[float]] = {name: [] for name in pipes}
        cpu: dict[str, list[float]] = {name: [] for name in pipes}
        peak = dict.fromkeys(pipes, 0.0)
        for turn in turns(options.rounds + 1, options.seconds * number / len(options.beams)):
            for precision, found in peaks.items():
                half = precision == "bfloat16"
                how = How(half=half, best=False, threads=options.threads, device=options.device)
                time.sleep(PAUSE)
                found.append(peak_flops(how))
            for name, pipe in pipes.items():
                time.sleep(PAUSE)
                pipe.send(beam)
                seconds, worked, peak[name] = pipe.recv()
                if turn:  # the first turn is a warm-up
                    times[name].append(seconds)
                    cpu[name].append(worked)
            of_beam = [
                {
                    "name": name,
                    "beam": beam,
                    "seconds": times[name],
                    "cpu": cpu[name],
                    "peak": peak[name],
                    "share": share(
                        operations[beam], times[name], peaks.get(precision_of(name) or "")
                    ),
                }
                for name in pipes
                if times[name]
            ]
            for row in of_beam:
                write_row(options.rows, row)
        rows += of_beam
    for pipe in pipes.values():
        pipe.send(None)
    return rows


def share(work: float, seconds: list[float], peaks: list[float] | None) -> float | None:
    """Return the median FLOP/s as a share of the median peak; None without a peak."""
    return work / statistics.median(seconds) / statistics.median(peaks) if peaks else None


def report(rows: list[dict[str, Any]], sentences: int) -> None:
    """Print a table for each beam."""
    for beam in dict.fromkeys(row["beam"] for row in rows):
        mine = [row for row in rows if row["beam"] == beam]
        medians = {row["name"]: statistics.median(row["seconds"]) for row in mine}
        yard = medians.get(YARDSTICK, float("nan"))
        print(f"\n{'greedy' if beam == 1 else f'beam {beam}'}\n")
        print(
            f"| | sentences/s (median) | range | to {YARDSTICK} | MFU % | CPU s | peak MB so far |"
        )
        print("|---|---|---|---|---|---|---|")
        for row in mine:
            slow, fast = max(row["seconds"]), min(row["seconds"])
            median = medians[row["name"]]
            of_peak = "" if row["share"] is None else f"{100 * row['share']:.0f}"
            print(
                f"| {row['name']} | {sentences / median:.2f} "
                f"| {sentences / slow:.2f} to {sentences / fast:.2f} "
                f"| {yard / median:.2f} | {of_peak} | {statistics.median(row['cpu']):.2f} "
                f"| {row['peak']:.0f} |"
            )


def remembered(options: argparse.Namespace) -> None:
    """Print the size of Weft's decoding state by beam, measured and by the formula."""
    import weft
    from weft.blocks.kernels.decode_state import Capacity, State
    from weft.graphs.cost.decode_state import state_by_node
    from weft.runtime.codegen.generated import program_of

    model: Any = weft.build(weft.load("transformer-base", vocab=VOCAB)).eval()
    sentences, length = options.sentences, options.length
    sizes = {"B": sentences, "S": length, "T": length}
    formula = state_by_node(program_of(model).graph, sizes)
    own = sum(count for path, count in formula.items() if "self_attention" in path)
    fixed = sum(formula.values()) - own
    ids = torch.ones(sentences, length, dtype=torch.long)

    def bytes_of(state: Any) -> int:
        if isinstance(state, torch.Tensor):
            return state.nbytes
        if isinstance(state, State):
            return sum(bytes_of(dict(part)) for part in state)
        return sum(map(bytes_of, state.values() if isinstance(state, Mapping) else state))

    print("\n| beam | state, MB | by `weft cost`, MB |\n|---|---|---|")
    for beam in (1, 2, 4, 8):
        capacity = Capacity(sentences, beam, length, torch.float32, torch.device("cpu"))
        with torch.inference_mode():
            found = bytes_of(model.begin(capacity, source=ids, source_mask=ids > 0))
        print(f"| {beam} | {found / 2**20:.1f} | {(fixed + beam * own) / 2**20:.1f} |")


def main() -> None:
    """Run all contestants in turn and print tables."""
    from weft.blocks.kernels.processor import processor_name

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--beams", type=int, nargs="*", help="widths of beams (default: 1 4)")
    parser.add_argument("--generate", action="store_true", help="measure GPT-2 small, greedy")
    parser.add_argument(
        "--rounds", type=int, default=5, help="measured turns per contestant (default: %(default)s)"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="device of all but fairseq, which runs on the CPU (default: %(default)s)",
    )
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument(
        "--length", type=int, default=32, help="tokens per source and output (default: %(default)s)"
    )
    parser.add_argument(
        "--spread",
        type=int,
        default=0,
        help="source lengths vary by up to this many tokens (default: %(default)s)",
    )
    parser.add_argument(
        "--only", nargs="*", metavar="NAME", help="contestants, such as 'weft bfloat16'"
    )
    add_rows_option(parser)
    options = parser.parse_args()
    if options.generate and options.beams:
        parser.error("--beams: --generate decodes greedily; leave it out")
    options.beams = [1] if options.generate else options.beams or [1, 4]
    unknown = set(options.only or ()) - set(contestants(options))
    if unknown:
        parser.error(f"--only: no {', '.join(sorted(unknown))}; {', '.join(contestants(options))}")
    lengths = f"{options.length} +- {options.spread}" if options.spread else str(options.length)
    machine = torch.cuda.get_device_name() if options.device == "cuda" else processor_name()
    print(
        f"{machine}, torch {torch.__version__}, "
        f"{options.threads} threads; {options.sentences} sources of {lengths} tokens, outputs of "
        f"{options.length}, vocabulary {VOCAB:,}, {options.rounds} rounds"
    )
    report(race(options), options.sentences)
    if not options.generate and options.device == "cpu":
        remembered(options)


if __name__ == "__main__":
    main()
