"""A full disk while a study is planned, trained, measured and reported loses nothing.

The faults of `tools/file_faults.py` are those of a disk that is full from one file operation
on; a write leaves half of its bytes.  `benchmarks/study_disk_drill.py` fills a real disk.
"""

from __future__ import annotations

import errno
import json
import os
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest
from weft.extensions.study import running
from weft.extensions.study.jobs import LOG, Job, jobs_of, open_plan
from weft.extensions.study.report.record import study_record
from weft.extensions.study.running import advice, run_jobs
from weft.extensions.study.worker import run_job
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.cli.main import main
from weft.runtime.system.executors.executor import Cluster, ExecutorSettings, Opened
from weft.runtime.train.retention import checkpoints

from .conftest import ONE_ROW, Writer, write_study, written
from .test_running import same, weights

pytestmark = pytest.mark.integration

TOOLS = Path(__file__).parents[3] / "tools"
JOB = """
import pickle, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from file_faults import inject
from weft.extensions.study.worker import work
from weft.runtime.system.executors.executor import attempted
folder, at, log = Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
inject(folder.parents[1], "full", at, Path(log) if log else None)
sys.stdout.buffer.write(pickle.dumps(attempted(work, (folder, "task.json"), {})))
"""
"""A worker in which the disk of the study is full from an operation on."""
NEVER = sys.maxsize

Capture = pytest.CaptureFixture[str]


def begun_again(done: Path, copy: Path) -> Job:
    """Remove what the first job of a finished study has made, and return the job."""
    job = written(write_study(done, rows=ONE_ROW), copy)[0]
    for name in ("train", "measured"):
        shutil.rmtree(job.folder / name)
    (job.folder / "trained.json").unlink()
    assert job.state() == "queued"
    return job


class OnFullDisk(ExecutorSettings):
    """Workers in which the disk of the study is full from an operation of each job on."""

    type: Literal["full"] = "full"
    at: int = NEVER
    log: str = ""

    def open(self, processes: int | None) -> Opened:
        """Return an executor that starts a process for each job."""
        del processes
        engine, command = ThreadPoolExecutor(1), [sys.executable, "-c", JOB, str(TOOLS)]

        def start(work: Any) -> Future[Any]:
            words = [*command, str(work.args[1][0]), str(self.at), self.log]
            return engine.submit(lambda: pickle.loads(subprocess.check_output(words)))

        return Opened(Cluster(start, (), engine.shutdown), 1)


class Broken(ExecutorSettings):
    """Workers in which every job fails before it begins."""

    type: Literal["broken"] = "broken"

    def open(self, processes: int | None) -> Opened:
        """Return an executor that fails."""
        del processes

        def start(work: Any) -> Future[Any]:
            del work
            future = Future[Any]()
            future.set_exception(RuntimeError("no worker"))
            return future

        return Opened(Cluster(start, (), lambda: None), 1)


def unsound(out: Path) -> list[str]:
    """Return what is not complete, or is left behind, in the folder of a study."""
    for path in out.rglob("*.json"):
        json.loads(path.read_text())
    for train in out.glob("jobs/*/train"):
        for path in [*checkpoints(train), train / "best", train / "averaged"]:
            if path.is_dir():
                open_checkpoint(path)
    return [str(path) for path in out.rglob("*.tmp")]


def figures(value: Any) -> Any:
    """Return a record without times and folders."""
    if isinstance(value, dict):
        return {k: figures(v) for k, v in value.items() if k not in ("seconds", "folder")}
    return [figures(one) for one in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def operations(done: Path, tmp_path_factory: pytest.TempPathFactory) -> int:
    """Return the number of file operations of a job that need space."""
    folder = tmp_path_factory.mktemp("counted")
    shutil.copytree(done / "out", folder / "out", symlinks=True)
    job, log = begun_again(done, folder / "out"), folder / "operations"
    assert run_jobs([job], on=OnFullDisk(log=str(log))).failed == {}
    return len(log.read_text().splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("part", [0.0, 0.3, 0.6, 0.9, 1.0])
def test_a_job_on_a_full_disk_fails_and_continues_to_the_same_report(
    part: float, operations: int, done: Path, copy: Path
) -> None:
    """Its record is complete or missing, and the reason is known though its folder cannot have it.

    With the space back, the weights have the same bits, and the record the same figures.
    """
    job, at = begun_again(done, copy), max(1, round(part * operations))
    other = next(one for one in jobs_of(open_plan(copy), copy) if one.key != job.key)
    work = run_jobs([job, other], on=OnFullDisk(at=at))

    assert [*work.failed] == [job.key]
    assert [one.key for one in work.done] == [other.key]
    assert str(job.folder / LOG) in work.failed[job.key]
    assert "No space left" in work.failed[job.key]
    log = job.folder / LOG  # missing if the disk was full when it was opened
    assert not log.is_file() or "Traceback" not in log.read_text()
    assert unsound(copy) == []
    assert job.state() == "failed"  # the study's process, whose disk is not full, wrote the reason

    assert run_job(job.folder) == "done"

    whole = Job(done / "out/jobs" / job.key, job.row, job.seed)
    assert same(weights(job), weights(whole))
    assert figures(study_record(copy)) == figures(study_record(done / "out"))
    for name in ("toy.answers.jsonl", "toy.sums.npz", "valid.answers.jsonl"):
        assert (job.measured / name).read_bytes() == (whole.measured / name).read_bytes()


class Disk:
    """A disk that is full from one write on: it takes half of the bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Take all files until `takes` is called."""
        self.taken, self.left = 0, NEVER
        write = Path.write_bytes

        def written(path: Path, content: Any) -> int:
            if self.taken >= self.left:
                write(path, content[: len(content) // 2])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            self.taken += 1
            return write(path, content)

        monkeypatch.setattr(Path, "write_bytes", written)

    def takes(self, files: int) -> None:
        """Take a number of files from now on."""
        self.taken, self.left = 0, files


def test_the_jobs_of_a_study_are_written_completely_or_not_at_all(
    toy_study: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """At each file before anything trains: a message with the way out, and then the same jobs."""
    path, disk = str(toy_study(rows=ONE_ROW, seeds=[1])), Disk(monkeypatch)
    words = ["study", "run", path, "--print-jobs", "--speed", "5", "--out"]
    assert main([*words, str(tmp_path / "whole")]) == 0
    wanted, files = capsys.readouterr().out.replace("whole", "out"), disk.taken
    assert files >= 2 * 2 + 1  # run and task of each job, and the plan

    for number in range(files):
        disk.takes(number)
        assert main([*words, str(tmp_path / "out")]) == 1
        said = capsys.readouterr()
        assert said.out == ""
        assert "error: cannot write the " in said.err
        assert "No space left on device" in said.err
        assert "help: free disk space, and run the same command again" in said.err
        assert unsound(tmp_path / "out") == []
        disk.takes(NEVER)
        assert main([*words, str(tmp_path / "out")]) == 0
        assert capsys.readouterr().out == wanted
        shutil.rmtree(tmp_path / "out")


def test_a_folder_that_cannot_be_locked_is_named(
    toy_study: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """The first file of a study; the system's error has no path if the disk is full at a write."""
    study, out = str(toy_study()), tmp_path / "out"

    def full(path: Path, *_: Any, **__: Any) -> int:
        assert path.parent == out
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)

    assert main(["study", "run", study, "--speed", "5", "--out", str(out)]) == 1
    said = capsys.readouterr().err
    assert "cannot lock the folder: No space left on device" in said
    assert f"--> {out}\n" in said
    assert "help: free disk space, and run the same command again" in said
    assert not [path for path in out.iterdir() if path.name != ".lock"]


def test_a_report_on_a_full_disk_leaves_the_older_one(
    done: Path, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Whether its first, a middle or its last file is too large for the disk."""
    words = ["study", "report", str(write_study(done, rows=ONE_ROW)), "--out", str(copy)]
    disk = Disk(monkeypatch)
    assert main(words) == 0
    before, files = report_of(copy), disk.taken
    assert len(before) == files == 9

    for number in (0, files // 2, files - 1):
        disk.takes(number)
        assert main(words) == 1
        assert "free disk space" in capsys.readouterr().err
        assert report_of(copy) == before


def report_of(out: Path) -> dict[str, bytes]:
    """Return the files of the report of a study."""
    return {path.name: path.read_bytes() for path in (out / "report").iterdir()}


def test_a_job_that_cannot_say_why_it_failed_stops_no_other(
    done: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its process nor the study's can write the reason; it stays in what the pool says."""
    job = begun_again(done, copy)
    others = [one for one in jobs_of(open_plan(copy), copy) if one.key != job.key]
    usage = shutil.disk_usage(copy)
    monkeypatch.setattr(running, "disk_usage", lambda _: usage._replace(free=0))
    Disk(monkeypatch).takes(0)

    work = run_jobs([job, *others], on=Broken())

    why = f"its disk has no space left: RuntimeError: no worker; see {job.folder / LOG}"
    assert work.failed == {job.key: why}
    assert len(work.done) == len(others)
    assert job.state() == "queued"
    assert unsound(copy) == []


def test_advice_names_the_disk_only_if_it_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No checkpoint is written with less than 16 MiB of free space."""
    usage = shutil.disk_usage(tmp_path)
    for free, words in ((16 << 20, False), ((16 << 20) - 1, True)):
        monkeypatch.setattr(running, "disk_usage", lambda _, n=free: usage._replace(free=n))
        said = advice(2, tmp_path)
        assert said.startswith("2 jobs failed")
        assert "the same command tries again what failed" in said
        assert (f"the disk of {tmp_path} has 15 MiB left: free disk space" in said) is words
