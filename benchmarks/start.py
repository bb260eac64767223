"""Measure the start-up time of checking a spec, of building a module and of a first translation.

    python benchmarks/start.py
    python benchmarks/start.py --checkpoint outputs/m30k/averaged

Complete processes are timed in turn, with one thread.  Medians of seconds are reported, and the
minimum of CPU seconds, which depends less on other work on the machine.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time

COMMAND = "from weft.runtime.cli.main import main; "
JOBS = {
    "an empty Python": "pass",
    "weft check transformer-base": f"{COMMAND}main(['check', 'transformer-base'])",
    "weft show transformer-base": f"{COMMAND}main(['show', 'transformer-base'])",
    "import torch": "import torch",
    "weft.build transformer-base": "import weft; weft.build('transformer-base')",
    "torch.nn.Transformer, 6 + 6 layers": "import torch; torch.nn.Transformer(512, 8, 6, 6, 2048)",
}


def cpu_seconds() -> float:
    """Return the CPU seconds of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Run every job in turn and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", help="also translate one line with it")
    parser.add_argument(
        "--rounds", type=int, default=7, help="processes of each kind (default: %(default)s)"
    )
    options = parser.parse_args()
    jobs = dict(JOBS)
    if options.checkpoint:
        given = ["translate", options.checkpoint, "--max-length", "20"]
        jobs["weft translate, one line"] = f"{COMMAND}main({given!r})"
    times: dict[str, list[float]] = {name: [] for name in jobs}
    cpu: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(options.rounds):
        for name, code in jobs.items():
            start, worked = time.perf_counter(), cpu_seconds()
            subprocess.run(
                [sys.executable, "-c", code],
                input=b"A dog runs.\n",
                stdout=subprocess.DEVNULL,
                check=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            times[name].append(time.perf_counter() - start)
            cpu[name].append(cpu_seconds() - worked)
    print(f"| process | seconds (median of {options.rounds}) | range | CPU s, minimum |")
    print("|---|---|---|---|")
    for name, found in times.items():
        print(
            f"| {name} | {statistics.median(found):.2f} | {min(found):.2f} to {max(found):.2f} "
            f"| {min(cpu[name]):.2f} |"
        )


if __name__ == "__main__":
    main()
