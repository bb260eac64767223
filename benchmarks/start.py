"""Measure the start-up time of checking a spec and of building a module.

    python benchmarks/start.py

Complete processes are timed in turn, and medians are reported.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

ROUNDS = 7
COMMAND = "from weft.runtime.cli.main import main; "
JOBS = {
    "an empty Python": "pass",
    "weft check transformer-base": f"{COMMAND}main(['check', 'transformer-base'])",
    "weft show transformer-base": f"{COMMAND}main(['show', 'transformer-base'])",
    "import torch": "import torch",
    "weft.build transformer-base": "import weft; weft.build('transformer-base')",
    "torch.nn.Transformer, 6 + 6 layers": "import torch; torch.nn.Transformer(512, 8, 6, 6, 2048)",
}


def main() -> None:
    """Run every job in turn and print a table."""
    times: dict[str, list[float]] = {name: [] for name in JOBS}
    for _ in range(ROUNDS):
        for name, code in JOBS.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=True)
            times[name].append(time.perf_counter() - start)
    print("| process | seconds (median of 7) | range |\n|---|---|---|")
    for name, found in times.items():
        print(f"| {name} | {statistics.median(found):.2f} | {min(found):.2f} to {max(found):.2f} |")


if __name__ == "__main__":
    main()
