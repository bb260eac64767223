"""Fixtures that train runs under torchrun with gloo processes on this machine."""

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
from weft.runtime.train.history import read
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


HUNG = 1200.0
"""Seconds after which a command counts as hung; two cores may be shared by thirty processes."""


class Bench:
    """A run on disk, and helpers that train it in several ways."""

    def __init__(self, folder: Path, run: Run) -> None:
        """Write the run file."""
        self.folder = folder
        self.file = folder / "run.json"
        self.file.write_text(json.dumps(run.model_dump(mode="json", by_alias=True)))

    def command(
        self, out: str, processes: int, *more: str, launch: tuple[str, ...] = ()
    ) -> list[str]:
        """Return the command that trains the run, with or without torchrun."""
        train = ["-m", "weft", "train", str(self.file), "--out", str(self.folder / out), *more]
        if not processes:
            return [sys.executable, *train]
        run = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        return [sys.executable, *run, *launch, *train]

    def train(self, out: str, processes: int, **settings: Any) -> Path:
        """Train the run; keyword arguments, with `__` for dots, are passed as --set options.

        Raises:
            AssertionError: the command failed.
        """
        more = [f"--set={key.replace('__', '.')}={value}" for key, value in settings.items()]
        if (self.folder / out).exists():
            more.append("--resume")
        done = subprocess.run(
            self.command(out, processes, *more),
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=HUNG,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return self.folder / out

    def rewrite(self, out: Path, processes: int, settings: dict[str, Any]) -> None:
        """Read the newest checkpoint of a run in several processes and write it without an update.

        Raises:
            AssertionError: the command failed.
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
            timeout=HUNG,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def curve(folder: Path) -> list[tuple[str, int, float]]:
    """Return the history of a run: type, update, loss."""
    return [
        (event["type"], event["update"], event["loss"] if "loss" in event else event["nll"])
        for event in read(folder)
    ]


def validations(folder: Path) -> list[dict[str, float]]:
    """Return the figures of the validations of a run, by name."""
    events = (event for event in read(folder) if event["type"] == "valid")
    return [{name: event[name] for name in event.keys() - {"type", "seconds"}} for event in events]


def tensors(folder: Path, name: str) -> dict[str, Any]:
    """Return the unsharded tensors of a run's checkpoint."""
    path = folder / "checkpoints" / name
    return {f"{k}:{n}": t for k in ("weights", "optimizer") for n, t in tensors_in(path, k).items()}


@pytest.fixture(scope="module")
def bench(toy_run_module: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Return a run of 12 updates of 4 batches, with dropout, gradient clipping and padding.

    Its validations also measure predictions.
    """
    measures = {"every": 6, "best": "nll", "metrics": ["perplexity", "chrf"], "samples": 3}
    run = toy_run_module(optimizer={"clip": 0.5}, without=["unpad"], evaluate=measures)
    return Bench(tmp_path_factory.mktemp("bench"), run)


@pytest.fixture(scope="module")
def alone(bench: Bench) -> Path:
    """Return the folder of the run, trained by one process."""
    return bench.train("alone", 0)
