"""A study and a translation on Ray and Dask: the bytes of this machine's, and nothing is lost."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from weft.extensions.study.jobs import PoolState
from weft.extensions.study.running import run_jobs
from weft.runtime.cli.common import chunks
from weft.runtime.cli.main import main

from ...runtime.system.executors.test_engines import MARK, dask, ray  # noqa: F401 - fixtures
from .conftest import ONE_ROW, Writer, written
from .test_running import same, weights

pytestmark = [pytest.mark.slow, pytest.mark.integration]


def workers() -> list[int]:
    """Return the processes of the test's engines that do a unit."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (folder / "cmdline").read_bytes()
            works = b"ray::_called" in command or b"local import serve" in command
            if works and MARK.encode() in (folder / "environ").read_bytes():
                pids.append(int(folder.name))
    return pids


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks into /proc")
@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_a_study_and_a_translation_are_those_of_this_machine(
    engine: str,
    request: pytest.FixtureRequest,
    toy_study: Writer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker is killed while it trains; the weights and the lines are equal to the bit."""
    on = str(request.getfixturevalue(engine))
    path, killed = toy_study(rows=ONE_ROW, seeds=[1, 2]), list[int]()
    local = written(path, tmp_path / "local")
    assert len(run_jobs(local, 1).done) == 4
    jobs = written(path, tmp_path / "there")

    def kill(_: PoolState) -> None:
        if not killed and any(job.state() == "running" for job in jobs):
            killed.extend(workers()[:1])
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    work = run_jobs(jobs, 2, on=on, look=kill)

    assert killed
    assert work.failed == {}
    assert {job.key for job in work.done} == {job.key for job in jobs}
    for here, there in zip(local, jobs, strict=True):
        assert same(weights(here), weights(there))
    monkeypatch.setattr(chunks, "ROWS", 3)
    checkpoint, text = str(local[0].folder / "train/averaged"), tmp_path / "in.txt"
    text.write_text("a b c\nb\nc a\n\n" * 3)
    words = ["translate", checkpoint, str(text), "-o"]
    assert main([*words, str(tmp_path / "here.txt")]) == 0
    assert main([*words, str(tmp_path / "there.txt"), "--on", on, "--processes", "2"]) == 0
    assert (tmp_path / "there.txt").read_bytes() == (tmp_path / "here.txt").read_bytes()
