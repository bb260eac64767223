"""Ray, Dask and Slurm: heads that the test starts and stops, results equal to local ones."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from weft.runtime.data.prepare import prepare
from weft.runtime.data.shards import shards
from weft.runtime.system.executors.executor import LostError, On, opened

from ...data.pairs import bpe, lines, pairs

pytestmark = [pytest.mark.slow, pytest.mark.integration]

MARK = f"WEFT_TEST_ENGINE={uuid.uuid4()}"
"""Variable of the processes of the engines that this test starts."""


def content(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def marked() -> dict[str, str]:
    """Return the environment of an engine."""
    return {**os.environ, **dict([MARK.split("=")])}


def free_port() -> int:
    """Return a port that is free."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a scheduler and two workers of Dask; return `dask:ADDRESS`."""
    pytest.importorskip("distributed")
    folder = tmp_path_factory.mktemp("dask")
    address = f"tcp://127.0.0.1:{free_port()}"
    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard"]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1"]
    worker += ["--no-dashboard", "--local-directory", str(folder)]
    commands = [[*scheduler, "--host", address], worker, worker]
    with (folder / "log").open("wb") as log:
        processes = [
            subprocess.Popen(command, stdout=log, stderr=log, env=marked(), start_new_session=True)
            for command in commands
        ]
    try:
        yield f"dask:{address}"
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait()


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a head of Ray with two cores; return `ray:ADDRESS`."""
    pytest.importorskip("ray")
    # The paths of Ray's sockets must be short.
    port, command = free_port(), [sys.executable, "-m", "ray.scripts.scripts"]
    words = ["start", "--head", f"--port={port}", "--num-cpus=2", "--include-dashboard=false"]
    words += ["--disable-usage-stats", "--object-store-memory=100000000", "--block"]
    with (tmp_path_factory.mktemp("ray") / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *words], stdout=log, stderr=log, env=marked(), start_new_session=True
        )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.2)
    time.sleep(5)
    try:
        yield f"ray:127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(params=["dask", "ray", "local", "slurm"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> On:
    """Return an engine: a cluster, processes of this machine, or submitit's local executor."""
    if request.param in ("dask", "ray"):
        return str(request.getfixturevalue(request.param))
    if request.param == "slurm":
        pytest.importorskip("submitit")
        return {"type": "slurm", "cluster": "local", "folder": str(tmp_path / "slurm")}
    return "local"


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
