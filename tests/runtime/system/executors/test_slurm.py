"""The jobs of Slurm: what is submitted, run by programs that stand for those of Slurm."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import pytest
from weft.runtime.system.executors.executor import LostError, opened

pytest.importorskip("submitit")
pytestmark = [pytest.mark.slow, pytest.mark.integration]

PROGRAMS = {
    # The first nodes fail, as many as the file says; the others run the script that was submitted.
    "sbatch": """
number=$(($(ls "$FAKE"/*.script 2> /dev/null | wc -l) + 1))
cp "$1" "$FAKE/$number.script"
if [ "$number" -le "$(cat "$FAKE/failing")" ]; then
    echo NODE_FAIL > "$FAKE/$number.state"
else
    echo RUNNING > "$FAKE/$number.state"
    export SLURM_JOB_ID=$number SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_NNODES=1
    # Its output is not that of sbatch, whose end submitit waits for.
    (bash "$FAKE/$number.script"; echo COMPLETED > "$FAKE/$number.state") &> "$FAKE/log" &
fi
echo "Submitted batch job $number"
""",
    "srun": """
while [[ "$1" == --* ]]; do
    if [[ "$1" == --output || "$1" == --error ]]; then shift; fi
    shift
done
exec "$@"
""",
    "sacct": """
echo "JobID|State|NodeList"
for state in "$FAKE"/*.state; do
    echo "$(basename "$state" .state)|$(cat "$state")|node"
done
""",
    "scancel": "",
}


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of programs that stand for Slurm, and of what they were told."""
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "failing").write_text("0")
    monkeypatch.setenv("FAKE", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    slurm = importlib.import_module("submitit.slurm.slurm")
    monkeypatch.setattr(slurm.SlurmJob, "watcher", slurm.SlurmInfoWatcher(delay_s=1))
    return tmp_path


def flags(script: Path) -> dict[str, str]:
    """Return the options of sbatch in a script."""
    lines = script.read_text().splitlines()
    words = [line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH --")]
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def test_the_script_has_the_options_of_the_user(slurm: Path) -> None:
    """Partition, time, cores, GPUs and memory, a requeue, and further options of sbatch."""
    settings: dict[str, Any] = {
        "type": "slurm",
        "partition": "gpu",
        "minutes": 90,
        "cpus": 4,
        "gpus": 1,
        "memory": 16,
        "parameters": {"account": "mt"},
        "folder": str(slurm / "jobs"),
    }

    with opened(settings, 1) as engine:
        assert engine.executor.submit(abs, -3).result(timeout=240) == 3

    expected = {
        "job-name": "weft",
        "partition": "gpu",
        "time": "90",
        "cpus-per-task": "4",
        "gpus-per-node": "1",
        "mem": "16GB",
        "requeue": "",
        "account": "mt",
    }
    assert expected.items() <= flags(slurm / "1.script").items()


def test_a_job_may_stay_away_after_a_failure(slurm: Path) -> None:
    """And without a partition, Slurm chooses its default."""
    with opened({"type": "slurm", "requeue": False, "folder": str(slurm / "jobs")}, 1) as engine:
        assert engine.executor.submit(abs, -3).result(timeout=240) == 3

    options = flags(slurm / "1.script")
    assert "no-requeue" in options
    assert not {"requeue", "partition"} & options.keys()


@pytest.mark.parametrize(("failing", "submitted"), [(2, 3), (3, 3)])
def test_a_unit_whose_node_fails_is_submitted_again(
    failing: int, submitted: int, slurm: Path
) -> None:
    """Three times in all; then it is lost."""
    (slurm / "failing").write_text(str(failing))

    with opened({"type": "slurm", "folder": str(slurm / "jobs")}, 1) as engine:
        unit = engine.executor.submit(abs, -3)
        if failing < submitted:
            assert unit.result(timeout=240) == 3
        else:
            with pytest.raises(LostError):
                unit.result(timeout=240)

    assert len(list(slurm.glob("*.script"))) == submitted
