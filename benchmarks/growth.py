"""Measure time and memory of a training step against depth, width, length and vocabulary.

Each point runs in its own process: it builds a Transformer, makes some updates as `weft train`
does (fused linear cross-entropy, fused Adam), and reports the median time and the memory needed
beyond what importing torch needs.  Then the time until the first compiled step is measured
against depth, with an empty cache.

Times are CPU times on one thread, compilers included, so other work on the machine matters
little.

    python benchmarks/growth.py --out docs/growth

writes docs/growth.png and docs/growth.json in about 8 minutes on an idle core.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BASE = {"layers": 6, "d_model": 128, "length": 64, "vocab": 8_000, "rows": 8}
"""Sizes that stay fixed while one of them grows; layers are per side, rows are sentences."""
GROWN: dict[str, tuple[int, ...]] = {
    "layers": (6, 12, 24, 48),
    "d_model": (64, 128, 256, 512),
    "length": (64, 128, 256, 512, 1024, 2048),
    "vocab": (8_000, 16_000, 32_000, 64_000, 128_000),
}
FIXED: dict[str, dict[str, int]] = {"length": {"rows": 1}}
"""Overrides while one size grows: lengths are measured with one sentence per batch."""
NAMES = {
    "layers": "layers on each side",
    "d_model": "d_model (d_ff = 4 d_model)",
    "length": "tokens of a sentence, one sentence",
    "vocab": "vocabulary",
}
STEPS = 3
COLD = (6, 12, 24, 48)
"""Depths at which compiling is timed."""


def step(given: dict[str, int]) -> dict[str, float]:
    """Make some updates in this process; return seconds per update and peak MB."""
    import torch
    import weft
    from fused_loss import fused_loss
    from weft.graphs.passes.fuse import leave_projection
    from weft.runtime.spec.check import graph_of

    torch.manual_seed(1)
    torch.set_num_threads(1)
    spec = _spec(weft, given)
    graph = leave_projection(graph_of(spec))
    before = _peak()
    model = weft.build(graph).train()
    (head,) = graph.execution.deferred
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(4, given["vocab"], (given["rows"], given["length"]))
    inputs = {"source": ids, "source_mask": ids != 0, "target": ids}
    took = []
    for _ in range(STEPS + 1):
        began = time.process_time()
        (fused_loss(model, head, inputs, ids) / ids.numel()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        took.append(time.process_time() - began)
    parameters = sum(p.numel() for p in model.parameters())
    return {
        "seconds": statistics.median(took[1:]),
        "megabytes": _peak() - before,
        "parameters": parameters,
    }


def cold(given: dict[str, int]) -> dict[str, float]:
    """Compile the layers and make a first step in this process; return seconds and graphs."""
    import torch
    import weft

    torch.set_num_threads(1)
    model = weft.build(_spec(weft, given)).train()
    report = weft.compile(model, mode="layers")
    ids = torch.randint(4, given["vocab"], (2, 16))
    began = sum(os.times()[:4])
    model(source=ids, source_mask=ids != 0, target=ids)["logits"].sum().backward()
    return {"seconds": sum(os.times()[:4]) - began, "graphs": report.found}


def _spec(weft: Any, given: dict[str, int]) -> Any:
    return weft.load(
        "transformer-base",
        layers=given["layers"],
        d_model=given["d_model"],
        heads=max(1, given["d_model"] // 32),
        vocab=given["vocab"],
    )


def _peak() -> float:
    """Return the peak memory of this process, in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return math.nan


def apart(work: str, given: dict[str, int]) -> dict[str, float]:
    """Run one measurement in its own process, with an empty cache of compiled code."""
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, __file__, "--work", work, "--given", json.dumps(given)],
            check=True,
            capture_output=True,
            text=True,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "TORCHINDUCTOR_CACHE_DIR": cache,
                "TORCHINDUCTOR_COMPILE_THREADS": "1",  # compile in this process
                "WEFT_CACHE": cache,
            },
        )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(work, given, found, flush=True)
    return found


def power(sizes: list[int], values: list[float]) -> float:
    """Return p of values ~ sizes^p between the last two points."""
    return math.log(values[-1] / values[-2]) / math.log(sizes[-1] / sizes[-2])


def measure(only: list[str], known: Path) -> dict[str, Any]:
    """Return all points; each is saved when it is done, and not measured again."""
    found: dict[str, Any] = {"base": BASE}
    if known.is_file():
        found = json.loads(known.read_text())
    jobs = [
        (name, "step", name, {**BASE, **FIXED.get(name, {}), name: size})
        for name in GROWN
        for size in GROWN[name]
    ]
    jobs += [("cold", "cold", "layers", {**BASE, "layers": n, "vocab": 1000}) for n in COLD]
    for part, work, name, given in jobs:
        points = found.setdefault(part, [])
        if part in only and all(point[name] != given[name] for point in points):
            points.append({name: given[name], **apart(work, given)})
            points.sort(key=lambda point: point[name])
            known.write_text(json.dumps(found, indent=1) + "\n")
    return {name: points for name, points in found.items() if points}


def plot(found: dict[str, Any], path: Path) -> None:
    """Plot time and memory against each size, and compile time against depth."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    names = [name for name in GROWN if len(found.get(name, ())) > 1]
    figure, axes = plt.subplots(2, len(names) + 1, figsize=(4 * len(names) + 4, 6.5))
    for column, name in enumerate(names):
        sizes = [point[name] for point in found[name]]
        for row, (key, unit) in enumerate((("seconds", "s"), ("megabytes", "MB"))):
            values = [point[key] for point in found[name]]
            axis = axes[row][column]
            axis.loglog(sizes, values, "o-", color="#33628f")
            grows = power(sizes, values)
            axis.set_title(f"{key} of a step, last two ~ n^{grows:.2f}", fontsize=9)
            axis.set_xlabel(NAMES[name])
            axis.set_ylabel(unit)
            axis.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=7)
            # Ticks at 1, 2 and 5 of each power, because some ranges contain only one power of ten.
            marks = [m * 10.0**p for p in range(-3, 5) for m in (1, 2, 5)]
            ticks = [mark for mark in marks if min(values) / 1.5 < mark < max(values) * 1.5]
            axis.set_yticks(ticks, [f"{mark:,g}" for mark in ticks])
            axis.minorticks_off()
            axis.grid(alpha=0.3)
    first, last = axes[0][-1], axes[1][-1]
    last.axis("off")
    first.axis("off")
    if "cold" in found:
        first.axis("on")
        depths = [point["layers"] for point in found["cold"]]
        first.plot(depths, [point["seconds"] for point in found["cold"]], "o-", color="#a04a2b")
        first.set_ylim(0, 1.15 * max(point["seconds"] for point in found["cold"]))
        first.set_xticks(depths)
        first.set_title("seconds to the first compiled step", fontsize=9)
        first.set_xlabel(NAMES["layers"])
        first.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure and plot everything, or run one measurement."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument(
        "--out",
        default="outputs/growth",
        help="path of the files to write, without suffix (default: %(default)s)",
    )
    options.add_argument("--only", nargs="*", default=[*GROWN, "cold"])
    options.add_argument("--work", choices=("step", "cold"), help=argparse.SUPPRESS)
    options.add_argument("--given", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.work:
        done = {"step": step, "cold": cold}[given.work](json.loads(given.given))
        print(json.dumps(done))
        return
    out = Path(given.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    plot(measure(given.only, out.with_suffix(".json")), out.with_suffix(".png"))


if __name__ == "__main__":
    main()
