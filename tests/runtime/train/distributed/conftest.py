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
from weft.runtime.checkpoint.checkpoint import tensors_in
from weft.runtime.train.reporting.history import read
from weft.runtime.train.run import Run

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
REWRITE = """
import json, sys
from weft.runtime import api
from weft.runtime.train.trainer import Trainer

def written(self):
    self._save()
    return self._finish()

Trainer.train = written
api.train(sys.argv[1], out=sys.argv[2], overrides=json.loads(sys.argv[3]), resume=True)
"""


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

    def rewrite(self, out: Path, processes: int, settings: dict[str, Any]) -> None:
        """Let processes read the newest checkpoint of a run and write it, without an update.

        Raises:
            AssertionError: they failed.
        """
        script = self.folder / "rewrite.py"
        script.write_text(REWRITE)
        run = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        launch = run if processes > 1 else []
        given = [str(self.file), str(out), json.dumps(settings)]
        done = subprocess.run(
            [sys.executable, *launch, str(script), *given],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def curve(folder: Path) -> list[tuple[str, int, float]]:
    """Return what a run measured: kind, update, loss."""
    return [
        (event["type"], event["update"], event["loss"] if "loss" in event else event["nll"])
        for event in read(folder / "metrics.jsonl")
    ]


def tensors(folder: Path, name: str) -> dict[str, Any]:
    """Return the tensors of a run's checkpoint, whole."""
    path = folder / "checkpoints" / name
    return {f"{k}:{n}": t for k in ("weights", "optimizer") for n, t in tensors_in(path, k).items()}


@pytest.fixture(scope="module")
def bench(toy_run_module: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Return a run of 12 updates of 4 batches, with dropout, a clipped gradient and padding."""
    run = toy_run_module(optimizer={"clip": 0.5}, padding="padded")
    return Bench(tmp_path_factory.mktemp("bench"), run)


@pytest.fixture(scope="module")
def alone(bench: Bench) -> Path:
    """Return the folder of the run as one process trains it."""
    return bench.train("alone", 0)
