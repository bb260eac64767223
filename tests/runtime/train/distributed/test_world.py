"""Tests of the process group, and of resuming after a restart by torchrun."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from weft.runtime.train.distributed.world import (
    World,
    is_main_process,
    restarted,
    share_folder,
)


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Pretend that torchrun started this process as the main process of its job."""
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("TORCHELASTIC_RUN_ID", "job-1")):
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_without_torchrun_nothing_is_restarted_and_no_file_is_written(tmp_path: Path) -> None:
    """One process shares its folder with no other."""
    share_folder(tmp_path / "run", World())

    assert not restarted(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert is_main_process()


def test_a_restarted_job_is_recognized(launch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A job finds its name, which may have several words; another job does not, until it starts."""
    for job in ("job-1", "job 2"):
        launch.setenv("TORCHELASTIC_RUN_ID", job)
        assert not restarted(tmp_path)
        share_folder(tmp_path, World())
        assert restarted(tmp_path)
        share_folder(tmp_path, World())
        assert restarted(tmp_path)


def test_a_job_without_a_name_is_known_by_its_process(
    launch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two jobs with the name `none` are distinguished by their process."""
    launch.setenv("TORCHELASTIC_RUN_ID", "none")
    share_folder(tmp_path, World())
    assert restarted(tmp_path)

    other = os.getppid() + 1
    launch.setattr("os.getppid", lambda: other)
    assert not restarted(tmp_path)


def test_one_process_agrees_with_itself() -> None:
    """With a single process the collectives return their inputs."""
    alone = World()

    assert alone.is_main_process
    assert (alone.data_parallel_rank, alone.data_parallel_size) == (0, 1)
    assert alone.broadcast({"nll": 2.5}) == {"nll": 2.5}
    assert alone.largest(3.0, 1.0) == [3.0, 1.0]
    assert torch.equal(alone.summed(torch.ones(2)), torch.ones(2))
    assert alone.gathered("answer") == ["answer"]
    assert alone.on_main(lambda: 3) == 3
