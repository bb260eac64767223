"""Runs under torchrun: processes of this machine that talk by gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from weft.runtime.checkpoint import read_tensors
from weft.runtime.train.history import read
from weft.runtime.train.run import Run

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


class Bench:
    """A run on disk, and what came of training it in several ways."""

    def __init__(self, folder: Path, run: Run) -> None:
        """Write the run's file."""
        self.folder = folder
        self.file = folder / "run.json"
        self.file.write_text(json.dumps(run.model_dump(mode="json")))

    def command(
        self, out: str, processes: int, *more: str, launch: tuple[str, ...] = ()
    ) -> list[str]:
        """Return the command that trains it, under torchrun or without."""
        train = ["-m", "weft", "train", str(self.file), "--out", str(self.folder / out), *more]
        if not processes:
            return [sys.executable, *train]
        run = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        return [sys.executable, *run, *launch, *train]

    def train(self, out: str, processes: int, **settings: Any) -> Path:
        """Train it; keyword arguments with `__` for dots are passed by --set.

        Raises:
            AssertionError: it failed.
        """
        more = [f"--set={key.replace('__', '.')}={value}" for key, value in settings.items()]
        if (self.folder / out).exists():
            more.append("--resume")
        done = subprocess.run(
            self.command(out, processes, *more),
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return self.folder / out


def curve(folder: Path) -> list[tuple[str, int, float]]:
    """Return what a run measured: kind, update, loss."""
    return [
        (event["type"], event["update"], event["loss"] if "loss" in event else event["nll"])
        for event in read(folder / "metrics.jsonl")
    ]


def tensors(folder: Path, name: str) -> dict[str, Any]:
    """Return the tensors of a run's checkpoint."""
    return {
        f"{file}:{key}": tensor
        for file in ("weights", "optimizer")
        if (folder / "checkpoints" / name / f"{file}.safetensors").is_file()
        for key, tensor in read_tensors(
            folder / "checkpoints" / name / f"{file}.safetensors"
        ).items()
    }


@pytest.fixture(scope="module")
def bench(toy_run_module: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Return a run of 12 updates of 4 batches, with dropout and a clipped gradient."""
    run = toy_run_module(optimizer={"clip": 0.5})
    return Bench(tmp_path_factory.mktemp("bench"), run)


@pytest.fixture(scope="module")
def alone(bench: Bench) -> Path:
    """Return the folder of the run as one process trains it."""
    return bench.train("alone", 0)
