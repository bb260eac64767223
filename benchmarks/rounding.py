"""Measure how far the losses of one process and of several drift apart, in float32 and in float64.

    python benchmarks/rounding.py --updates 200 --processes 2

Sums of gradients are added in another order by several processes, so they round differently, and a
training amplifies such differences.  A tiny model is trained by one process, by several, and again
by one with another attention kernel, which computes the same function and rounds differently too;
all in float32 and in float64, in which the same program rounds 5e8 times less.  What remains in
float64 would be a fault of the program.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from kill_drill_runs import write_run

SETTINGS = ("accumulate=4", "evaluate.every=4", "optimizer.groups=[]", "checkpoint.every=1000")
KINDS = ("float32", "float64")
ANOTHER = "kernels.attention=plain"
"""A setting that changes the order of sums alone."""


def trained(run: Path, kind: str, processes: int = 1, *settings: str) -> dict[int, float]:
    """Train, and return the loss per token of each validation.

    Args:
        run: file of the run.
        kind: dtype of weights, activations and sums.
        processes: number of processes.
        settings: more settings of the run.
    """
    with tempfile.TemporaryDirectory(dir=run.parent) as out:
        launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        words = ["train", str(run), "--out", out, *(f"--set={s}" for s in (*SETTINGS, *settings))]
        subprocess.run(
            [sys.executable, *(launch if processes > 1 else []), __file__, "--as", kind, *words],
            check=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.DEVNULL,
        )
        events = map(json.loads, (Path(out) / "metrics.jsonl").read_text().splitlines())
        return {e["update"]: e["nll"] for e in events if e["type"] == "valid"}


def weft_as(kind: str, words: list[str]) -> int:
    """Run a command of Weft with another dtype in place of float32, and return its exit code."""
    if kind == "float64":
        torch.float32 = torch.float = torch.float64
        torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]
        torch.set_default_dtype(torch.float64)
    from weft.runtime.cli.main import main as weft

    return weft(words)


def main() -> None:
    """Print the largest difference of each pair of trainings, and where it first passes 1e-5."""
    if sys.argv[1:2] == ["--as"]:
        sys.exit(weft_as(sys.argv[2], sys.argv[3:]))
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--updates", type=int, default=200, help="updates of the run")
    parser.add_argument("--processes", type=int, default=2, help="processes of the second training")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        run = write_run(Path(name), options.updates)
        for kind in KINDS:
            one = trained(run, kind)
            others = {
                f"{options.processes} processes": trained(run, kind, options.processes),
                ANOTHER: trained(run, kind, 1, ANOTHER),
            }
            for what, losses in others.items():
                apart = {update: abs(losses[update] - one[update]) for update in one}
                worst = max(apart, key=apart.__getitem__)
                print(
                    f"{kind}, one process and {what}: first {next(iter(apart.values())):.1e},"
                    f" last {apart[max(apart)]:.1e}, largest {apart[worst]:.1e} after update"
                    f" {worst}; {len(apart)} validations",
                    flush=True,
                )


if __name__ == "__main__":
    main()
