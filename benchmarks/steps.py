"""Measure the savings of Weft's decoding-step optimizations, each against decoding without it.

    python benchmarks/steps.py --threads 2 --rounds 5
    python benchmarks/steps.py --only compiled --precision bfloat16 --sentences 1 16 64

Transformer base, vocabulary 37,000, random weights, the end token suppressed.  `narrowed`:
outputs are as long as their sources, 4 to 60 tokens, and finished sentences leave the batch.
`forced-prefix`: outputs of 32 tokens with a forced prefix of 24.  `compiled`: steps of one length,
compiled by torch; compile time is reported separately.  Both variants take turns, and medians
are reported.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from contestants import build_weft
from decoders import BEGIN, END, PAD
from peers import BASE
from weft.blocks.kernels.processor import processor_name
from weft.runtime.compile.decode_compile import Steps
from weft.runtime.compile.decoder import use_steps
from weft.runtime.decode import active_rows
from weft.runtime.decode import decode as ids
from weft.runtime.decode.decode import Request, SpecialTokens, decode_ids
from weft.runtime.decode.settings import BeamSearch

VOCAB, LENGTH, GIVEN = 37_000, 32, 24
Turn = Callable[[], object]


def random_ids(count: int, generator: torch.Generator) -> list[int]:
    """Return `count` random ids of words."""
    found: list[int] = torch.randint(4, VOCAB - 1, (count,), generator=generator).tolist()
    return found


def race(turns: dict[str, Turn], rounds: int) -> None:
    """Run two variants in turn after a warm-up, and print medians of wall and CPU seconds."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in turns}
    for turn in range(rounds + 1):
        for name, run in turns.items():
            start, worked = time.perf_counter(), time.process_time()
            run()
            if turn:
                spent = time.perf_counter() - start, time.process_time() - worked
                times[name].append(spent)
    for place, what in enumerate(("", " of CPU")):
        medians = {
            name: statistics.median(one[place] for one in each) for name, each in times.items()
        }
        first, second = medians.values()
        summary = ", ".join(f"{name} {median:.3f} s" for name, median in medians.items())
        print(f"  {summary}{what}: {first / second:.2f} x as fast", flush=True)


def decoding(
    model: Any, requests: Sequence[Request], beam: int, options: argparse.Namespace
) -> Turn:
    """Return a run over all requests, whose outputs all reach their maximal length."""
    search = BeamSearch(beam=beam, max_factor=1.0, max_extra=0, min_length=10_000)
    special_tokens, half = SpecialTokens(BEGIN, END, PAD), options.precision == "bfloat16"
    return lambda: decode_ids([model], requests, special_tokens, search, half=half)


def swapped(run: Turn, module: Any, name: str, value: object) -> Turn:
    """Return a run during which an attribute of a module has another value."""

    def other() -> None:
        before = getattr(module, name)
        setattr(module, name, value)
        try:
            run()
        finally:
            setattr(module, name, before)

    return other


def main() -> None:
    """Measure the requested optimizations."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=["narrowed", "forced-prefix", "compiled"])
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--sentences", type=int, nargs="*", default=[64])
    parser.add_argument("--beams", type=int, nargs="*", default=[1, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(
        f"{processor_name()}, torch {torch.__version__}, "
        f"{options.threads} threads, {options.precision}, {options.rounds} rounds"
    )
    model: Any = build_weft(replace(BASE, vocab=VOCAB)).eval()
    for count in options.sentences:
        generator = torch.Generator().manual_seed(1)
        even = [random_ids(LENGTH, generator) for _ in range(count)]
        lengths = torch.randint(4, 61, (count,), generator=generator).tolist()
        mixed = [Request(random_ids(n, generator)) for n in lengths]
        begun = [Request(one, random_ids(GIVEN, generator)) for one in even]
        for beam in options.beams:
            print(f"{count} sentences, {'greedy' if beam == 1 else f'beam {beam}'}")
            if "narrowed" in options.only:
                run = decoding(model, mixed, beam, options)
                race(
                    {"full batch": swapped(run, active_rows, "NARROW", math.inf), "narrowed": run},
                    options.rounds,
                )
            if "forced-prefix" in options.only:
                run = decoding(model, begun, beam, options)
                race(
                    {
                        "token by token": swapped(run, ids, "common", lambda *_: 0),
                        "forced-prefix": run,
                    },
                    options.rounds,
                )
            if "compiled" in options.only:
                race(_compiled(model, even, beam, options), options.rounds)


def _compiled(
    model: Any, sources: Sequence[Sequence[int]], beam: int, options: argparse.Namespace
) -> dict[str, Turn]:
    """Return runs with plain and with compiled steps; log the compile time."""
    run = decoding(model, [Request(one) for one in sources], beam, options)
    ways = {"plain": Steps("off"), "compiled": Steps("on", log=lambda text: print(f"  {text}"))}

    def using(steps: Steps) -> Turn:
        def turn() -> None:
            use_steps(model, steps)
            run()

        return turn

    return {name: using(steps) for name, steps in ways.items()}


if __name__ == "__main__":
    main()
