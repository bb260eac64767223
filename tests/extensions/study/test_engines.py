"""Studies on Ray, Dask and Slurm: the report of this machine, though a worker is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from weft.extensions.study.jobs import jobs_of, open_plan
from weft.runtime.cli.main import main

from ...runtime.system.executors.engines import cluster, dask, kill_worker, ray, submitit
from .conftest import ONE_ROW, write_study

__all__ = ["cluster", "dask", "ray"]
pytestmark = [pytest.mark.slow, pytest.mark.integration]

ROWS = {f"dropout-{number}": {"params": {"dropout": number / 10}} for number in range(2, 6)}
SEEDS = [1, 2, 3, 4]
"""With the baseline, twenty jobs."""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a study of twenty jobs, with its report from processes of this machine in `local`."""
    folder = tmp_path_factory.mktemp("study")
    path = write_study(folder, rows=ROWS, seeds=SEEDS)
    words = ["study", "run", str(path), "--out", str(folder / "local"), "--processes", "2"]
    assert main([*words, "--speed", "5"]) == 0
    return path


def report(out: Path) -> dict[str, Any]:
    """Return the files of a report of a study, without times and the name of its folder."""
    texts = {
        path.name: path.read_text().replace(str(out), "OUT")
        for path in (out / "report").iterdir()
        if path.suffix in (".csv", ".md", ".tex", ".json")
    }
    record = json.loads(texts.pop("toy-study.json"))
    return {**texts, "toy-study.json": without_times(record)}


def without_times(value: Any) -> Any:
    """Return JSON data without the seconds of trainings and validations."""
    if isinstance(value, list):
        return [without_times(entry) for entry in value]
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k not in ("seconds", "time")}
    return value


def test_twenty_jobs_have_the_report_of_this_machine(
    cluster: str, study: Path, tmp_path: Path
) -> None:
    """One worker is killed while it trains; its job is begun again."""
    out = tmp_path / "out"
    words = ["study", "run", str(study), "--out", str(out), "--on", cluster, "--speed", "5"]

    with subprocess.Popen([sys.executable, "-m", "weft", *words]) as command:
        kill_worker(out / "jobs", "*/.job.lock", command)

    assert command.returncode == 0
    assert {job.state() for job in jobs_of(open_plan(out), out)} == {"done"}
    assert report(out) == report(study.parent / "local")


# submitit leaves the log files of its debug executor open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["local", "debug"])
def test_the_jobs_of_submitit_train_a_study(kind: str, tmp_path: Path) -> None:
    """Each run is a job, in a process of this machine or in this process."""
    path = write_study(tmp_path, rows=ONE_ROW, seeds=[1])
    words = ["study", "run", str(path), "--out", str(tmp_path / "out"), "--speed", "5"]
    on = json.dumps(submitit(tmp_path, kind))

    assert main([*words, "--on", on, "--processes", "2"]) == 0

    jobs = jobs_of(open_plan(tmp_path / "out"), tmp_path / "out")
    assert [job.state() for job in jobs] == ["done", "done"]
