"""Tests of the process group, and of resuming after a restart by torchrun."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from weft.runtime.train.distributed.world import World, is_main_process, resumes_by_itself


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Pretend that torchrun started this process as the main process of its job."""
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("TORCHELASTIC_RUN_ID", "job-1")):
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_without_torchrun_no_run_resumes_automatically(tmp_path: Path) -> None:
    """Without torchrun no run resumes automatically, and no file is written."""
    assert not resumes_by_itself(tmp_path / "run", World(), refused=True)
    assert not (tmp_path / "run").exists()
    assert is_main_process()


def test_a_restarted_job_resumes(launch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A restarted job finds its own name; another job does not, unless it starts the run anew."""
    assert not resumes_by_itself(tmp_path, World(), refused=False)
    assert resumes_by_itself(tmp_path, World(), refused=True)

    launch.setenv("TORCHELASTIC_RUN_ID", "job-2")
    assert not resumes_by_itself(tmp_path, World(), refused=True)
    assert not resumes_by_itself(tmp_path, World(), refused=True)
    assert not resumes_by_itself(tmp_path, World(), refused=False)
    assert resumes_by_itself(tmp_path, World(), refused=True)


def test_a_job_without_a_name_is_known_by_its_process(
    launch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two jobs with the name `none` are distinguished by their process."""
    launch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert not resumes_by_itself(tmp_path, World(), refused=False)
    assert resumes_by_itself(tmp_path, World(), refused=True)

    other = os.getppid() + 1
    launch.setattr("os.getppid", lambda: other)
    assert not resumes_by_itself(tmp_path, World(), refused=True)


def test_one_process_agrees_with_itself() -> None:
    """With a single process the collectives return their inputs."""
    alone = World()

    assert alone.is_main_process
    assert (alone.data_parallel_rank, alone.data_parallel_size) == (0, 1)
    assert alone.broadcast({"nll": 2.5}) == {"nll": 2.5}
    assert alone.largest(3.0, 1.0) == [3.0, 1.0]
    assert torch.equal(alone.summed(torch.ones(2)), torch.ones(2))
