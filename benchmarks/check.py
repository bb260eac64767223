"""Time `weft check`, as a process and against the size of a spec.

    python benchmarks/check.py [--plot docs/check-time.png]

Processes are timed in turn, and medians are reported.  Within one process, sizes are timed in
turn for several rounds; the exponent p of time ~ nodes^p is a least-squares fit in logarithms.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROUNDS = 9
LAYERS = (10, 30, 100, 300, 1_000, 3_000, 9_990)
WRITTEN = (30, 60, 125, 250, 500, 990)
PER_LAYER = 10
"""Blocks of one encoder and one decoder layer of transformer-base, including blocks in slots."""
CHECK = "from weft.runtime.cli.main import main; main(['check', 'transformer-base'])"
JOBS = {
    "an empty Python": "pass",
    "weft check transformer-base": CHECK,
    "the same, 1,000 + 1,000 layers": CHECK.replace("base'", "base', '--set', 'layers=1000'"),
}


def processes() -> None:
    """Time complete processes in turn, and print a table."""
    done = subprocess.run(
        [sys.executable, "-c", f"{CHECK}; import sys; print('torch' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    times: dict[str, list[float]] = {name: [] for name in JOBS}
    for _ in range(ROUNDS):
        for name, code in JOBS.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=True)
            times[name].append(time.perf_counter() - start)
    print(f"| process | seconds (median of {ROUNDS}) | range |\n|---|---|---|")
    for name, found in times.items():
        print(f"| {name} | {statistics.median(found):.3f} | {min(found):.3f} to {max(found):.3f} |")
    print(f"\ntorch imported: {done.stdout.splitlines()[-1]}\n")


def written_out(nodes: int) -> dict[str, Any]:
    """Return a spec with a chain of `nodes` separately written nodes."""
    chain = {
        f"n{i}": {
            "use": "linear@1",
            "in": {"x": f"n{i - 1}.y" if i else "x"},
            "params": {"d_out": "=d"},
        }
        for i in range(nodes)
    }
    return {
        "format": 1,
        "name": "chain",
        "params": {"d": 64},
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T d]"},
        "outputs": {"y": f"n{nodes - 1}.y"},
        "nodes": chain,
    }


def sizes() -> dict[str, dict[int, float]]:
    """Return median seconds by number of nodes, for each job."""
    from weft.blocks.registry import registry
    from weft.extensions.interop.export.flat import flat_graph
    from weft.graphs.checker.check import check
    from weft.specs.load import load

    folder = Path(tempfile.mkdtemp())
    for nodes in WRITTEN:
        (folder / f"{nodes}.json").write_text(json.dumps(written_out(nodes)))

    def checked(name: str | Path, **overrides: int) -> Any:
        loaded = load(name, overrides)
        return check(loaded.form, registry(), loaded.overrides)

    deep = {layers: checked("transformer-base", layers=layers) for layers in LAYERS}
    jobs: dict[str, Mapping[int, Callable[[], Any]]] = {
        "check, nodes from repeats": {
            PER_LAYER * n: lambda n=n: checked("transformer-base", layers=n).parameters()
            for n in LAYERS
        },
        "check, nodes written out": {
            n: lambda n=n: checked(folder / f"{n}.json").parameters() for n in WRITTEN
        },
        "every placed node as a networkx graph": {
            PER_LAYER * n: lambda n=n: flat_graph(deep[n]) for n in LAYERS
        },
    }
    found: dict[str, dict[int, list[float]]] = {}
    for _ in range(ROUNDS):
        for kind, by_size in jobs.items():
            for size, job in by_size.items():
                start = time.perf_counter()
                job()
                times = found.setdefault(kind, {}).setdefault(size, [])
                times.append(time.perf_counter() - start)
    return {
        kind: {size: statistics.median(times) for size, times in by_size.items()}
        for kind, by_size in found.items()
    }


def exponent(times: Mapping[int, float]) -> float:
    """Return p of time ~ nodes^p, by least squares in logarithms."""
    points = [(math.log(size), math.log(seconds)) for size, seconds in times.items()]
    x = statistics.fmean(x for x, _ in points)
    y = statistics.fmean(y for _, y in points)
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def plot(found: Mapping[str, Mapping[int, float]], out: Path) -> None:
    """Draw seconds against nodes, both on logarithmic axes."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    for (kind, times), mark in zip(found.items(), "osv", strict=True):
        label = f"{kind}: nodes^{exponent(times):.2f}"
        axes.plot(list(times), list(times.values()), marker=mark, label=label)
    axes.set(xscale="log", yscale="log", xlabel="nodes", ylabel="seconds (median)")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(out, dpi=144)


def main() -> None:
    """Time everything, print tables and optionally plot."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--plot", type=Path, help="file for the plot, such as docs/check-time.png")
    options = parser.parse_args()
    processes()
    found = sizes()
    print("| in one process | nodes | seconds (median) | exponent |\n|---|---|---|---|")
    for kind, times in found.items():
        for size, seconds in times.items():
            last = f"{exponent(times):.2f}" if size == max(times) else ""
            print(f"| {kind} | {size:,} | {seconds:.4f} | {last} |")
    if options.plot:
        plot(found, options.plot)


if __name__ == "__main__":
    main()
