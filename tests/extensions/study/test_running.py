"""Tests of the jobs of a study: nothing runs twice, failures stay alone, stopped jobs continue."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock
from weft.extensions.study.jobs import (
    LOCK,
    Job,
    PoolState,
    jobs_of,
    open_plan,
    status_of,
    summary,
)
from weft.extensions.study.running import run_jobs
from weft.extensions.study.speed import flops_per_second
from weft.extensions.study.worker import run_job
from weft.runtime.checkpoint.checkpoint import read_tensors
from weft.runtime.cli.main import main
from weft.runtime.system.executors.executor import ATTEMPTS
from weft.runtime.system.executors.local import ProcessSlot, slots
from weft.specs.findings import InputError

from .conftest import ONE_ROW, SWIGLU, Writer, write_study, written

pytestmark = pytest.mark.integration

Capture = pytest.CaptureFixture[str]


def weights(job: Job) -> dict[str, Any]:
    """Return the averaged weights of a job."""
    return read_tensors(job.folder / "train/averaged/weights.safetensors")


def same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    """Return whether tensors are equal to the bit."""
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def test_jobs_are_trained_and_measured_on_every_split(done: Path) -> None:
    """Each job has scores of the validation data and of the test set, and its answers."""
    jobs = jobs_of(open_plan(done / "out"), done / "out")

    assert [(job.row, job.seed) for job in jobs] == [
        ("baseline", 1),
        ("swiglu", 1),
        ("baseline", 2),
        ("swiglu", 2),
    ]
    for job in jobs:
        assert job.state() == "done"
        result = json.loads((job.measured / "result.json").read_text())
        assert result["splits"].keys() == {"valid", "toy"}
        assert result["splits"]["toy"]["scores"].keys() == {"chrf", "bleu"}
        assert len((job.measured / "toy.answers.jsonl").read_text().splitlines()) == 12
        assert status_of(job)["update"] == 4
    assert not same(weights(jobs[0]), weights(jobs[2]))


def test_data_is_prepared_once(done: Path) -> None:
    """All jobs refer to one folder."""
    [shared] = [one for one in (done / "out/prepared").iterdir() if not one.name.startswith(".")]
    links = {one.resolve() for one in (done / "out/jobs").glob("*/train/prepared")}

    assert links == {shared.resolve()}


def test_an_edited_study_reuses_what_is_done(done: Path, copy: Path) -> None:
    """A renamed row, a new seed and a new row: only the new jobs remain."""
    rows = {"gated": SWIGLU, "one-head": {"params": {"heads": 1}}}
    path = write_study(done, rows=rows, seeds=[1, 2, 3])

    jobs = written(path, copy)

    waiting = {(job.row, job.seed) for job in jobs if job.state() != "done"}
    assert waiting == {("one-head", s) for s in (1, 2, 3)} | {("baseline", 3), ("gated", 3)}


def test_other_metrics_measure_again_but_train_nothing(done: Path, copy: Path) -> None:
    """The trained model stays; its new measurements are made from it."""
    path = write_study(done, rows=ONE_ROW, measure={"metrics": ["ter"], "checkpoint": "best"})
    jobs = written(path, copy)
    assert {job.state() for job in jobs} == {"stopped"}
    before = (jobs[0].folder / "trained.json").stat().st_mtime_ns

    assert run_job(jobs[0].folder) == "done"

    result = json.loads((jobs[0].measured / "result.json").read_text())
    assert result["splits"]["toy"]["scores"].keys() == {"ter"}
    assert (jobs[0].folder / "trained.json").stat().st_mtime_ns == before


def test_a_stopped_job_continues_to_the_same_weights(done: Path, copy: Path) -> None:
    """A job without its last checkpoint ends with the weights of one that was not stopped."""
    job = written(write_study(done, rows=ONE_ROW), copy)[0]
    whole = weights(job)
    for name in ("averaged", "checkpoints/000004"):
        shutil.rmtree(job.folder / "train" / name)
    shutil.rmtree(job.measured)
    (job.folder / "trained.json").unlink()
    assert job.state() == "stopped"

    assert run_job(job.folder) == "done"

    assert same(weights(job), whole)


@pytest.mark.slow
def test_a_job_may_have_several_processes(tmp_path: Path) -> None:
    """The run says how many; its losses are those of one process."""
    losses = []
    for name, parallel in (("one", {}), ("two", {"parallel": {"processes": 2}})):
        study = write_study(
            tmp_path / name, rows=ONE_ROW, seeds=[1], settings={"accumulate": 2, **parallel}
        )
        job = written(study, tmp_path / name / "out")[0]
        assert run_job(job.folder) == "done"
        lines = (job.folder / "train/metrics.jsonl").read_text().splitlines()
        losses.append([event["nll"] for event in map(json.loads, lines)])

    assert len(losses[0]) >= 3
    assert losses[1] == pytest.approx(losses[0], abs=1e-5)


def test_a_job_that_another_process_trains_is_running(done: Path, copy: Path) -> None:
    """The state follows the lock, and the lock does not hide a result."""
    jobs = written(write_study(done, rows=ONE_ROW), copy)
    shutil.rmtree(jobs[0].measured)

    with FileLock(jobs[0].folder / LOCK), FileLock(jobs[1].folder / LOCK):
        assert [job.state() for job in jobs] == ["running", "done", "done", "done"]

    assert jobs[0].state() == "stopped"


def test_the_time_that_is_left_follows_the_speed_of_what_was_trained() -> None:
    """Two GFLOP took 2 s + 2 s; three are left, which two processes share."""
    cost = {"training_flops": 2e9, "updates": 10}
    done = ({"state": "done", "update": 10, "seconds": 2.0}, {"training_flops": 1e9, "updates": 10})
    half = ({"state": "running", "update": 5, "seconds": 2.0}, cost)
    new = {"update": 0}

    assert summary([done, half, ({"state": "running", **new}, cost)]) == (
        "1 of 3 done, 2 running; about 3 s left"
    )
    assert summary([done, half, ({"state": "failed", **new}, cost)]) == (
        "1 of 3 done, 1 running, 1 failed; about 6 s left"
    )
    assert summary([done]) == "1 of 1 done"
    assert summary([({"state": "queued", **new}, cost)]) == "0 of 1 done"
    assert summary([done, ({"state": "stopped", **new}, cost)]) == (
        "1 of 2 done; about 4 s of training left"
    )


def test_the_failure_of_a_job_is_kept_and_repaired_by_the_next_attempt(
    done: Path, copy: Path
) -> None:
    """The reason is in the status; other jobs are not concerned."""
    jobs = written(write_study(done, rows=ONE_ROW), copy)
    shutil.rmtree(jobs[0].measured)
    hidden = (done / "test.tgt").rename(done / "hidden.tgt")
    try:
        with pytest.raises(InputError):
            run_job(jobs[0].folder)
    finally:
        hidden.rename(done / "test.tgt")

    assert [job.state() for job in jobs] == ["failed", "done", "done", "done"]
    assert "test.tgt" in status_of(jobs[0])["error"]
    assert run_job(jobs[0].folder) == "done"
    assert jobs[0].state() == "done"
    assert jobs[0].error() == ""


def test_a_job_that_the_system_kills_is_lost(done: Path, copy: Path) -> None:
    """For want of memory, say: no process is left that could note it; the next attempt repairs."""
    [job, *_] = written(write_study(done, rows=ONE_ROW), copy)
    shutil.rmtree(job.measured)
    lock = FileLock(job.folder / LOCK)  # its worker waits, and is killed meanwhile
    killed: list[int] = []

    def kill(_: PoolState) -> None:
        for pid in children_of(os.getpid()):
            if pid not in killed:
                killed.append(pid)
                os.kill(pid, signal.SIGKILL)

    with lock:
        work = run_jobs([job], look=kill)

    assert len(killed) == ATTEMPTS
    assert job.state() == "lost"
    assert work.failed == {job.key: job.error()}
    assert "SIGKILL" in job.error()
    assert run_jobs([job]).done == [job]
    assert job.state() == "done"


def children_of(parent: int) -> list[int]:
    """Return the processes that a process has started."""
    return [
        int(pid)
        for path in Path(f"/proc/{parent}/task").glob("*/children")
        for pid in path.read_text().split()
    ]


def test_finished_runs_tell_the_speed(done: Path, tmp_path: Path) -> None:
    """FLOPs of the finished updates over their seconds; a given speed is taken as it is."""
    record = open_plan(done / "out")
    flops = seconds = 0.0
    for row in record["rows"]:
        for key in row["jobs"].values():
            trained = json.loads((done / "out/jobs" / key / "trained.json").read_text())
            flops += row["costs"]["training_flops"]
            seconds += trained["seconds"]
    run: Any = None

    assert flops_per_second(done / "out")(run) == pytest.approx(flops / seconds)
    assert flops_per_second(tmp_path, 5e9)(run) == 5e9


def test_cores_are_divided_among_processes() -> None:
    """Equally; processes share cores if there are too few."""
    assert slots(2, [4, 5, 6, 7]) == [(4, 5), (6, 7)]
    assert slots(1, [0, 1]) == [(0, 1)]
    assert slots(3, [0, 1]) == [(0,), (1,), (0,)]


def test_processes_see_one_gpu_each_as_long_as_there_are_enough() -> None:
    """The third of three processes on two GPUs shares the first one."""
    seen = [
        ProcessSlot(n, (n,)).environment(["4", "GPU-a"])["CUDA_VISIBLE_DEVICES"] for n in range(3)
    ]

    assert seen == ["4", "GPU-a", "4"]
    assert ProcessSlot(0, (0, 1)).environment([])["OMP_NUM_THREADS"] == "2"


def test_dry_and_print_jobs_train_nothing(
    toy_study: Writer, tmp_path: Path, capsys: Capture
) -> None:
    """The plan is printed, and then a command for each job, which the shell can run."""
    path, out = str(toy_study()), str(tmp_path / "out")

    assert main(["study", "run", path, "--out", out, "--dry", "--speed", "5"]) == 0
    assert "swiglu" in capsys.readouterr().out
    assert not (tmp_path / "out/plan.json").exists()
    assert main(["study", "run", path, "--out", out, "--print-jobs", "--speed", "5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert len(list((tmp_path / "out/pictures").glob("*"))) == 2 * bool(shutil.which("dot"))
    assert all(" -m weft study job " in line for line in lines)
    assert [line.split("  # ")[1] for line in lines[:4]] == [
        "baseline, seed 1",
        "swiglu, seed 1",
        "no-smoothing, seed 1",
        "baseline, seed 2",
    ]
    assert main(["study", "status", path, "--out", out, "--json"]) == 0
    assert {one["state"] for one in json.loads(capsys.readouterr().out)} == {"queued"}


def test_rows_are_chosen_by_name(toy_study: Writer, tmp_path: Path, capsys: Capture) -> None:
    """The jobs of other rows are not printed; a row that does not exist is refused."""
    words = ["study", "run", str(toy_study()), "--out", str(tmp_path / "out"), "--speed", "5"]
    words += ["--row", "swiglu"]

    assert main([*words, "--row", "baseline", "--print-jobs"]) == 0
    names = [line.split("  # ")[1] for line in capsys.readouterr().out.splitlines()]
    assert sorted(names) == [
        "baseline, seed 1",
        "baseline, seed 2",
        "swiglu, seed 1",
        "swiglu, seed 2",
    ]
    assert main([*words, "--row", "swigul"]) == 1
    assert "did you mean 'swiglu'?" in capsys.readouterr().err
    assert main([*words, "--dry"]) == 2
    assert "--row" in capsys.readouterr().err


def test_a_wrong_study_exits_1_and_names_the_row(toy_study: Writer, capsys: Capture) -> None:
    """Before anything is written."""
    path = toy_study(rows={"a": {"params": {"hedas": 1}}})

    assert main(["study", "check", str(path), "--speed", "5"]) == 1
    assert "'hedas'" in capsys.readouterr().err
    assert main(["study", "check", str(path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["code"] == "P04"


@pytest.mark.parametrize("words", [["status"], ["report"]])
def test_a_study_that_was_not_run_has_no_status(
    words: list[str], toy_study: Writer, tmp_path: Path, capsys: Capture
) -> None:
    """The help says how to run it."""
    assert main(["study", *words, str(toy_study()), "--out", str(tmp_path / "no")]) == 1
    assert "weft study run" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["status", "report"])
def test_an_edited_study_is_not_taken_for_what_was_run(
    toy_study: Writer, tmp_path: Path, capsys: Capture, command: str
) -> None:
    """Status and report show the study as it was run, and say so; --set is no edit."""
    out = str(tmp_path / "out")
    run = ["study", "run", str(toy_study()), "--out", out, "--set", "seeds=[1]", "--speed", "5"]
    assert main([*run, "--print-jobs"]) == 0
    capsys.readouterr()

    assert main(["study", command, str(toy_study()), "--out", out]) == 0
    assert "was edited after" not in capsys.readouterr().err
    path = toy_study(compare={"level": 0.9})
    assert main(["study", command, str(path), "--out", out]) == 0
    assert "the study was edited after it was run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ([], "Input should be an object"),
        ({"rows": []}, "study: Field required"),
        ({"study": 3}, "study: Input should be a valid string"),
    ],
)
def test_a_damaged_plan_is_refused(
    plan: object, problem: str, toy_study: Writer, tmp_path: Path, capsys: Capture
) -> None:
    """The message names what is wrong, and how to get it back."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/plan.json").write_text(json.dumps(plan))

    assert main(["study", "status", str(toy_study()), "--out", str(tmp_path / "out")]) == 1
    printed = capsys.readouterr().err
    assert problem in printed
    assert "run the study again" in printed


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM]
)
def test_a_signal_stops_the_trainings_and_is_the_exit_code(
    number: signal.Signals, toy_study: Writer, tmp_path: Path
) -> None:
    """130 for Ctrl-C, 143 for SIGTERM, which schedulers send; the same command continues."""
    path, out = toy_study(rows=ONE_ROW, seeds=[1], settings={"updates": 100_000}), tmp_path / "out"
    command = [sys.executable, "-m", "weft", "study", "run", str(path), "--out", str(out)]
    process = subprocess.Popen([*command, "--speed", "5"], stderr=subprocess.PIPE, text=True)
    while not list(out.glob("jobs/*/train/metrics.jsonl")):
        assert process.poll() is None
        time.sleep(0.1)

    process.send_signal(number)

    _, printed = process.communicate()
    assert process.returncode == 128 + number
    assert "the same command continues" in printed
    assert "stopped" in {job.state() for job in jobs_of(open_plan(out), out)}


@pytest.mark.slow
def test_processes_run_jobs_and_one_failure_does_not_stop_the_others(
    toy_study: Writer, tmp_path: Path
) -> None:
    """A row whose loss is not finite fails; the report has the others."""
    rows = {"diverges": {"set": {"schedule.peak": 1e30}}, "swiglu": SWIGLU}
    path, out = toy_study(rows=rows, seeds=[1]), tmp_path / "out"
    command = [sys.executable, "-m", "weft", "study", "run", str(path), "--out", str(out)]
    command += ["--processes", "2", "--speed", "5"]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 1, done.stderr
    states = {job.row: job.state() for job in jobs_of(open_plan(out), out)}
    assert states == {"baseline": "done", "diverges": "failed", "swiglu": "done"}
    page = (out / "report/toy-study.html").read_text()
    assert "not finite" in page
    assert "swiglu against baseline" in page


@pytest.mark.slow
def test_a_job_does_not_depend_on_those_before_it_in_its_process(
    toy_study: Writer, tmp_path: Path
) -> None:
    """The last of three jobs of one worker has the weights of a job alone, to the bit."""
    jobs = written(toy_study(seeds=[1]), tmp_path / "together")
    alone = written(toy_study(seeds=[1]), tmp_path / "alone")[-1]

    work = run_jobs(jobs, 1)

    assert work.done == jobs
    command = [sys.executable, "-m", "weft", "study", "job", str(alone.folder)]
    threads = str(len(os.sched_getaffinity(0)))
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": threads})
    assert same(weights(jobs[-1]), weights(alone))
    assert (jobs[-1].measured / "toy.answers.jsonl").read_bytes() == (
        alone.measured / "toy.answers.jsonl"
    ).read_bytes()
