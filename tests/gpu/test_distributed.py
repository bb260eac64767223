"""GPU tests of torchrun with NCCL, in one process; they also run on the CPU with gloo."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from weft.runtime.train.retention import checkpoints

from ..runtime.train.distributed.conftest import ENVIRONMENT, Bench, curve, tensors

Maker = Callable[..., Any]
CPU = pytest.param("cpu", marks=pytest.mark.slow)
CUDA = pytest.param("cuda", marks=pytest.mark.gpu)


def bench(toy_run: Maker, folder: Path, device: str) -> Bench:
    """Return a deterministic run of 12 updates with dropout, saved after every second one."""
    run = toy_run(
        device=device,
        deterministic=True,
        compile="eager",
        without=["unpad"],
        checkpoint={"every": 2, "keep": 3, "average": 2},
    )
    return Bench(folder, run)


@pytest.mark.parametrize("device", [CPU, CUDA])
def test_sharded_weights_give_the_losses_of_whole_ones(
    device: str, toy_run: Maker, tmp_path: Path
) -> None:
    """FSDP with a process group of one: gathers and reductions run, and change nothing."""
    runs = bench(toy_run, tmp_path, device)
    whole = curve(runs.train("whole", 0))

    sharded = curve(runs.train("sharded", 1, parallel__data="fsdp"))

    assert [each[:2] for each in sharded] == [each[:2] for each in whole]
    assert [each[2] for each in sharded] == pytest.approx([each[2] for each in whole], abs=1e-4)


@pytest.mark.parametrize("device", [CPU, CUDA])
def test_a_killed_run_resumes_to_the_same_bits(device: str, toy_run: Maker, tmp_path: Path) -> None:
    """SIGKILL of torchrun and its worker after the first checkpoint."""
    runs = bench(toy_run, tmp_path, device)
    straight = runs.train("straight", 1)
    command = runs.command("killed", 1)
    process = subprocess.Popen(
        command, env=ENVIRONMENT, stderr=subprocess.DEVNULL, start_new_session=True
    )
    while process.poll() is None and not checkpoints(tmp_path / "killed"):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()

    killed = runs.train("killed", 1)

    expected, resumed = tensors(straight, "000012"), tensors(killed, "000012")
    assert expected.keys() == resumed.keys()
    assert all(torch.equal(resumed[name], tensor) for name, tensor in expected.items())
