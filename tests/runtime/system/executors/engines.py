"""Heads of Ray and Dask that a test starts and stops, and the workers of their units."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from weft.runtime.system.executors.executor import On


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
            subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
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
def ray() -> Iterator[str]:
    """Start a head of Ray with two cores in a folder of its own; return `ray:ADDRESS`."""
    pytest.importorskip("ray")
    port, command = free_port(), [sys.executable, "-m", "ray.scripts.scripts"]
    words = ["start", "--head", f"--port={port}", "--num-cpus=2", "--include-dashboard=false"]
    words += ["--disable-usage-stats", "--object-store-memory=100000000", "--block"]
    folder = tempfile.mkdtemp(prefix="ray")  # the paths of Ray's sockets must be short
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RAY_TMPDIR", folder)
        environment.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(
                [*command, *words], stdout=log, stderr=log, start_new_session=True
            )
        try:
            _wait_for(port, process)
            yield f"ray:127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()
            shutil.rmtree(folder, ignore_errors=True)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until the head of Ray accepts drivers."""
    import ray  # noqa: PLC0415 - an extra

    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.2)
    while time.monotonic() < deadline and process.poll() is None:
        try:
            ray.init(f"127.0.0.1:{port}", log_to_driver=False)
        except (ConnectionError, RuntimeError, ValueError):
            time.sleep(1)
        else:
            ray.shutdown()
            return


@pytest.fixture(params=["dask", "ray"])
def cluster(request: pytest.FixtureRequest) -> str:
    """Return a cluster that runs."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture(params=["dask", "ray", "local", "slurm"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> On:
    """Return an engine: a cluster, processes of this machine, or submitit's local executor."""
    if request.param in ("dask", "ray"):
        return str(request.getfixturevalue(request.param))
    return submitit(tmp_path, "local") if request.param == "slurm" else "local"


def submitit(folder: Path, cluster: str) -> On:
    """Return the executor of Slurm with jobs that are processes of this machine, or this one."""
    pytest.importorskip("submitit")
    return {"type": "slurm", "cluster": cluster, "folder": str(folder / "slurm")}


def kill_worker(locks: Path, pattern: str, command: subprocess.Popen[bytes]) -> int:
    """Kill the first process that locks a file, as the worker of a unit does; return its id.

    Args:
        locks: folder of the files.
        pattern: what their paths match.
        command: a command that does units.
    """
    while command.poll() is None:
        for path in locks.glob(pattern):
            for opened in Path("/proc").glob("[0-9]*/fd/*"):
                try:
                    pid = int(opened.parts[2])
                    if pid not in (command.pid, os.getpid()) and opened.readlink() == path:
                        os.kill(pid, signal.SIGKILL)
                        return pid
                except OSError:
                    continue
        time.sleep(0.01)
    pytest.fail("the command ended before a worker was killed")
