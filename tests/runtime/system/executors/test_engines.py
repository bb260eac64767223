"""Ray, Dask and Slurm: heads that the test starts and stops, results equal to local ones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from weft.runtime.cli.main import main
from weft.runtime.data.prepare import prepare
from weft.runtime.data.shards import shards
from weft.runtime.system.executors.executor import LostError, On, opened
from weft.runtime.train.context import Result
from weft.runtime.train.run import Run

from ...conftest import write_toy
from ...data.pairs import bpe, lines, pairs
from .engines import cluster, dask, engine, kill_worker, ray, submitit

__all__ = ["cluster", "dask", "engine", "ray"]
TEMPLATES = Path(__file__).parents[4] / "examples/cluster"
pytestmark = [pytest.mark.slow, pytest.mark.integration]


def content(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_preparation_has_the_same_bytes(
    engine: On, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each shard is a unit; the files are those of one process."""
    monkeypatch.setattr(shards, "SHARD", 20)
    for side in ("en", "de"):
        rows = (f"w{number % 7} w{number % 11} {side}" for number in range(60))
        (tmp_path / f"text.{side}").write_text("".join(f"{row}\n" for row in rows))
    split = lines(["text.en"], ["text.de"])
    data = pairs(tmp_path, split, split)
    prepare(data, bpe(24), tmp_path / "alone", processes=1)

    prepare(data, bpe(24), tmp_path / "out", processes=2, on=engine)

    assert content(tmp_path / "out") == content(tmp_path / "alone")


def test_a_worker_that_dies_is_replaced(engine: On, tmp_path: Path) -> None:
    """The unit is begun again, and the error of a unit arrives as it was raised."""
    program = f"""
import os, signal
from pathlib import Path
path = Path({str(tmp_path)!r}) / "begun"
if not path.exists():
    path.touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    with opened(engine, 2) as workers:
        unit = workers.executor.submit(exec, program)
        wrong = workers.executor.submit(int, "x")
        unit.result(timeout=120)
        with pytest.raises(ValueError, match="invalid literal"):
            wrong.result(timeout=120)

    assert (tmp_path / "begun").exists()


def test_a_unit_that_always_dies_is_lost(engine: On) -> None:
    """After some attempts, and without the others."""
    with opened(engine, 2) as workers:
        unit = workers.executor.submit(exec, "import os; os.kill(os.getpid(), 9)")
        other = workers.executor.submit(abs, -1)
        with pytest.raises(LostError):
            unit.result(timeout=240)
        assert other.result(timeout=120) == 1


def test_a_text_has_the_bytes_of_one_process_though_a_worker_is_killed(
    cluster: str, toy_trained: Result, tmp_path: Path
) -> None:
    """20,000 lines in chunks of 1,000: one chunk is begun again, and none is lost."""
    write_toy(tmp_path, 20_000, 1, "in")
    words = ["translate", str(toy_trained.checkpoint), str(tmp_path / "in.src"), "-o"]
    assert main([*words, str(tmp_path / "alone")]) == 0
    apart = [*words, str(tmp_path / "apart"), "--on", cluster]

    with subprocess.Popen([sys.executable, "-m", "weft", *apart]) as command:
        kill_worker(tmp_path / ".apart.work/.units", "*", command)

    assert command.returncode == 0
    assert (tmp_path / "apart").read_bytes() == (tmp_path / "alone").read_bytes()
    assert sorted(path.name for path in tmp_path.glob("*apart*")) == ["apart"]


# submitit leaves the log files of its debug executor open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["local", "debug"])
def test_the_jobs_of_submitit_have_the_bytes_of_one_process(
    kind: str, toy_trained: Result, tmp_path: Path
) -> None:
    """A job is a process of this machine, or this process."""
    write_toy(tmp_path, 1200, 1, "in")
    words = ["translate", str(toy_trained.checkpoint), str(tmp_path / "in.src"), "-o"]
    assert main([*words, str(tmp_path / "alone")]) == 0

    on = json.dumps(submitit(tmp_path, kind))
    assert main([*words, str(tmp_path / "apart"), "--on", on, "--processes", "2"]) == 0

    assert (tmp_path / "apart").read_bytes() == (tmp_path / "alone").read_bytes()


def test_the_template_of_ray_trains(
    ray: str, toy_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One machine with one process; the second call has nothing to do."""
    path = tmp_path / "run.json"
    path.write_text(toy_run().model_dump_json(by_alias=True, exclude_unset=True))
    monkeypatch.setenv("RAY_ADDRESS", ray.removeprefix("ray:"))
    words = [str(TEMPLATES / "ray_train.py"), str(path), str(tmp_path / "out"), "--starts", "1"]

    for _ in range(2):
        subprocess.run([sys.executable, *words], check=True)

    assert (tmp_path / "out/averaged/weights.safetensors").is_file()
