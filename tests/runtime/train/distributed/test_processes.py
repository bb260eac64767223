"""Several processes train as one does, and end together."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed import DistNetworkError, HashStore
from weft.runtime.train.distributed.heartbeat import Heartbeat, watched
from weft.runtime.train.distributed.stopping import StopRequest
from weft.runtime.train.distributed.world import World
from weft.runtime.train.history import read
from weft.runtime.train.run import Run

from ..objective.conftest import DECODER, MASKED, MODEL, TWO_LOSSES, write_run
from .conftest import ENVIRONMENT, HUNG, Bench, curve, tensors, validations

WAYS = {
    "ddp on 2": (2, {}),
    "ddp on 4": (4, {"parallel__data": "ddp"}),
    "ddp on 3, which do not divide the batches": (3, {}),
    "fsdp on 2": (2, {"parallel__data": "fsdp"}),
    "fsdp on 4": (4, {"parallel__data": "fsdp"}),
    "fsdp on 3, which do not divide the batches": (3, {"parallel__data": "fsdp"}),
    "hsdp on 2 x 2": (4, {"parallel__data": "fsdp", "parallel__shard": 2}),
    "started by the command": (0, {"parallel__processes": 2}),
    "tensor 2": (2, {"parallel__tensor": 2}),
    "tensor 2 and fsdp 2": (4, {"parallel__tensor": 2}),
}
TENSOR = {"parallel__tensor": 2}
WEIGHTS = 2e-6
"""Absolute difference of weights and optimizer state after 12 updates; measured: 3.1e-7."""
NO_GRADIENT = 1e-8
"""Averaged gradient of a key bias, which is zero in exact arithmetic; measured: 3e-10."""


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_losses_and_weights_equal_those_of_one_process(bench: Bench, alone: Path, way: str) -> None:
    """Losses and weights, in float32 with dropout and clipping, and all figures of validations."""
    processes, settings = WAYS[way]

    folder = bench.train(way.replace(" ", "_").replace(",", ""), processes, **settings)

    losses, right_losses = curve(folder), curve(alone)
    assert [event[:2] for event in losses] == [event[:2] for event in right_losses]
    for (_, _, loss), (_, _, right) in zip(losses, right_losses, strict=True):
        assert loss == pytest.approx(right, abs=1e-5)
    assert_weights_equal(folder, alone)
    for figures, expected in zip(validations(folder), validations(alone), strict=True):
        assert {"nll", "perplexity", "chrf"} < figures.keys() == expected.keys()
        assert figures == pytest.approx(expected, rel=1e-6, abs=1e-5)
    for name in ("best", "averaged", "checkpoints/000008"):
        assert (folder / name / "weights.safetensors").is_file()


def assert_weights_equal(folder: Path, alone: Path) -> None:
    """Compare the last weights and the state of the optimizer of two runs of 12 updates.

    A key bias adds the same number to all scores of a query, which the softmax ignores.  Its
    gradient is only rounding error, and Adam scales that to the size of the learning rate: the
    weights may differ by 12 steps in each direction, but their averaged gradients are zero.
    """
    left, right = tensors(folder, "000012"), tensors(alone, "000012")
    assert left.keys() == right.keys()
    biases = {name for name in left if "key.bias" in name}
    assert {name.partition(":")[0] for name in biases} == {"weights", "optimizer"}
    for name in left.keys() - biases:
        torch.testing.assert_close(left[name], right[name], atol=WEIGHTS, rtol=0, msg=name)
    for name in biases:
        if name.endswith(".exp_avg"):
            assert max(float(one[name].abs().max()) for one in (left, right)) < NO_GRADIENT, name


@pytest.mark.slow
def test_two_optimizers_on_many_processes_equal_those_of_one(
    toy_run_module: Callable[..., Run], tmp_path: Path
) -> None:
    """Adam updates shards, Muon complete matrices; also resumed, from a sharded checkpoint."""
    tables = "**[use=embedding@1]"
    muon = {"select": "**[dim=2]", "except": [tables], "type": "muon", "factor": 0.2}
    optimizer = {"clip": 0.5, "groups": [{"select": tables, "factor": 2.0}, muon]}
    pieces = [{"to": 1, "over": 0.25}, {"shape": "cosine", "to": 0.1}]
    run = toy_run_module(
        optimizer=optimizer, schedule={"peak": 0.003, "pieces": pieces}, without=["unpad"]
    )
    bench = Bench(tmp_path, run)
    one = bench.train("one", 0)

    for name, settings in (("ddp", {}), ("fsdp", {"parallel__data": "fsdp"}), ("tensor", TENSOR)):
        folder = bench.train(name, 2, **settings)
        assert [loss for *_, loss in curve(folder)] == pytest.approx(
            [loss for *_, loss in curve(one)], abs=1e-5
        )
        assert tensors(folder, "000012").keys() == tensors(one, "000012").keys()
    shutil.copytree(one, tmp_path / "handed_on")
    sharded = {"parallel.data": "fsdp", "checkpoint.sharded": True}
    bench.rewrite(tmp_path / "handed_on", 2, sharded)
    bench.rewrite(tmp_path / "handed_on", 1, {})
    before, after = tensors(one, "000012"), tensors(tmp_path / "handed_on", "000012")
    assert all(torch.equal(before[key], after[key].reshape(before[key].shape)) for key in before)


@pytest.mark.slow
def test_a_limit_of_batches_that_changes_is_that_of_one_process(
    toy_run_module: Callable[..., Run], tmp_path: Path
) -> None:
    """Also with sharded weights, whose processes must run equally many batches."""
    steps = [{"from": 60, "over": 5}, {"from": 150}]
    bench = Bench(tmp_path, toy_run_module(batch={"tokens": steps}))
    one = bench.train("one", 0)

    for name, settings in (("ddp", {}), ("fsdp", {"parallel__data": "fsdp"})):
        folder = bench.train(name, 2, **settings)
        assert [loss for *_, loss in curve(folder)] == pytest.approx(
            [loss for *_, loss in curve(one)], abs=1e-5
        )
        assert_weights_equal(folder, one)


@pytest.mark.slow
def test_fsdp_gathers_weights_in_the_precision_of_the_run(bench: Bench) -> None:
    """Losses agree to 2e-3 in bfloat16: FSDP also rounds embeddings, biases and norms."""
    half = {"precision": "bfloat16"}
    one = bench.train("half", 0, **half)

    folder = bench.train("half_fsdp", 2, parallel__data="fsdp", **half)

    assert [loss for *_, loss in curve(folder)] == pytest.approx(
        [loss for *_, loss in curve(one)], abs=2e-3
    )
    for tensor in tensors(folder, "000012").values():
        assert tensor.dtype == torch.float32


@pytest.mark.slow
def test_unpadded_rows_are_divided_between_processes(bench: Bench) -> None:
    """Losses agree for data parallelism, FSDP and tensor parallelism."""
    unpadded = {"padding": "unpadded", "without": []}
    one = bench.train("unpadded", 0, **unpadded)

    for name, settings in (
        ("unpadded_fsdp", {"parallel__data": "fsdp"}),
        ("unpadded_tensor", TENSOR),
    ):
        found = curve(bench.train(name, 2, **unpadded, **settings))
        assert [loss for *_, loss in found] == pytest.approx(
            [loss for *_, loss in curve(one)], abs=1e-5
        )


@pytest.mark.slow
def test_checkpoints_are_read_by_other_processes_to_the_bit(bench: Bench, alone: Path) -> None:
    """A checkpoint of one process is read and written by four, two and three, then unsharded."""
    before = tensors(alone, "000012")
    folder = bench.folder / "handed_on"
    shutil.copytree(alone, folder)
    for processes, settings in (
        (4, {"parallel.tensor": 2, "checkpoint.sharded": True}),
        (2, {"parallel.data": "fsdp", "checkpoint.sharded": True}),
        (3, {"parallel.data": "fsdp", "checkpoint.sharded": True}),
        (2, {"parallel.tensor": 2}),
        (1, {"checkpoint.sharded": True}),
        (1, {}),
    ):
        bench.rewrite(folder, processes, settings)

        newest = folder / "checkpoints" / "000012"
        assert (newest / "weights").is_dir() == ("checkpoint.sharded" in settings)
        assert not [p for p in newest.rglob("*") if p.name.startswith(".")]
        found = tensors(folder, "000012")
        assert before.keys() == found.keys()
        for name, tensor in before.items():
            assert torch.equal(tensor, found[name].reshape(tensor.shape)), name


SHARDED = {"parallel__data": "fsdp", "checkpoint__sharded": "true"}
SIZES: dict[str, tuple[tuple[int, dict[str, Any]], ...]] = {
    "2, 1, 3": ((2, {}), (0, {}), (3, {})),
    "1, 2 x 2, 2, 1": (
        (0, {}),
        (4, {"parallel__tensor": 2, "checkpoint__sharded": "true"}),
        (2, SHARDED),
        (0, {}),
    ),
}
"""Numbers of processes, one after the other, and their settings; 0 is one without torchrun."""


@pytest.mark.slow
@pytest.mark.parametrize("sizes", SIZES)
def test_a_run_resumes_with_another_number_of_processes(
    bench: Bench, alone: Path, sizes: str
) -> None:
    """Equally many updates by each number of processes give the curve of one process."""
    out = f"on {sizes}".replace(",", "").replace(" ", "_")
    ways = SIZES[sizes]
    for number, (processes, settings) in enumerate(ways, start=1):
        folder = bench.train(out, processes, updates=12 // len(ways) * number, **settings)

    (*_, last), (*_, expected) = curve(folder), curve(alone)
    assert last[:2] == expected[:2] == ("valid", 12)
    assert last[2] == pytest.approx(expected[2], abs=1e-5)
    assert (folder / "averaged" / "weights.safetensors").is_file()


@pytest.mark.slow
def test_a_worker_that_dies_is_started_again(bench: Bench) -> None:
    """After a crash torchrun restarts both; they resume from the newest checkpoint."""
    straight = bench.train("straight", 2, updates=24)
    again = ("--max-restarts=3", "--monitor-interval=0.1")
    line = bench.command("killed", 2, "--set=updates=24", launch=again)
    killed, log = bench.folder / "killed", bench.folder / "log"
    with log.open("w") as errors, subprocess.Popen(line, env=ENVIRONMENT, stderr=errors) as process:
        while not (killed / "checkpoints/000008").is_dir():
            assert process.poll() is None, log.read_text()
            time.sleep(0.01)
        os.kill(workers(process.pid)[-1], signal.SIGKILL)
        assert process.wait(HUNG) == 0, log.read_text()

    assert "resuming after update" in log.read_text()
    assert curve(killed)[-1] == curve(straight)[-1]
    left, right = tensors(killed, "000024"), tensors(straight, "000024")
    assert all(torch.equal(left[name], right[name]) for name in left)


def workers(parent: int) -> list[int]:
    """Return the processes that torchrun started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            status = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(status[1]) == parent and status[0] != "Z":
            found.append(int(path.parent.name))
    return sorted(found)


OBJECTIVES_WAYS = {
    "ddp": (2, {"parallel__data": "ddp"}),
    "fsdp": (2, {"parallel__data": "fsdp"}),
    "fsdp on 3": (3, {"parallel__data": "fsdp"}),
}
OBJECTIVES: dict[str, dict[str, Any]] = {
    "two losses": {
        "objective": TWO_LOSSES,
        "params": {"model": MODEL, "reader": {"spec": "gpt2", "params": DECODER}},
    },
    "frozen": {
        "objective": TWO_LOSSES,
        "params": {"model": MODEL, "reader": {"spec": "gpt2", "params": DECODER}},
        "freeze": ["model.encoder.*"],
    },
    "masked": {
        "objective": MASKED,
        "params": {"model": {"spec": "gpt2", "params": DECODER}},
        "columns": {"text": "src"},
    },
}


def bench_of(folder: Path, name: str) -> Bench:
    """Return the run of an objective on disk."""
    file = write_run(folder, optimizer={"clip": 0.5}, **OBJECTIVES[name])
    bench = Bench.__new__(Bench)
    bench.folder, bench.file = folder, file
    return bench


@pytest.mark.slow
@pytest.mark.parametrize("way", OBJECTIVES_WAYS)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_each_loss_equals_that_of_one_process(tmp_path: Path, name: str, way: str) -> None:
    """All losses and scores agree to 1e-5 in float32, with dropout, noise and clipping."""
    bench = bench_of(tmp_path, name)
    processes, settings = OBJECTIVES_WAYS[way]

    alone, many = bench.train("alone", 0), bench.train("many", processes, **settings)

    assert curve(many) == [(*head, pytest.approx(loss, abs=1e-5)) for *head, loss in curve(alone)]
    for left, right in zip(*(read(each) for each in (alone, many)), strict=True):
        for key in left.keys() - {"seconds", "tokens_per_second", "data_wait_share"}:
            assert right[key] == pytest.approx(left[key], abs=1e-5), key


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        """Begin at 0."""
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def test_a_process_is_silent_after_the_patience() -> None:
    """Three processes: one beats, one stops beating, and one never began."""
    store, clock = HashStore(), Clock()
    first, second = (Heartbeat(store, rank, 3, patience=60.0, clock=clock) for rank in (0, 1))
    second.beat()
    assert first.silent() == []

    for clock.now in (30.0, 59.0):
        second.beat()
        assert first.silent() == []
    clock.now = 61.0
    assert first.silent() == ["process 2"]
    clock.now = 120.0

    named = [name.partition(",")[0] for name in first.silent()]
    assert named == ["process 1", "process 2"]
    second.beat()
    assert first.silent() == ["process 2"]


def test_the_first_process_that_is_not_silent_reports_the_others() -> None:
    """So a message is printed once: by process 0, and by process 1 once that is silent too."""
    store, clock = HashStore(), Clock()
    first, second = (Heartbeat(store, rank, 3, patience=60.0, clock=clock) for rank in (0, 1))
    for clock.now in (0.0, 61.0):
        first.beat()
        second.beat()
        assert "process 0" not in [*first.silent(), *second.silent()]

    assert (first.is_first, second.is_first) == (True, False)
    clock.now = 122.0
    assert [name.partition(",")[0] for name in second.silent()] == ["process 0", "process 2"]
    assert second.is_first


def test_the_end_of_torchrun_is_a_problem() -> None:
    """A worker whose parent is another one than at its start has been orphaned."""
    heartbeat = Heartbeat(HashStore(), 0, 1, patience=60.0)

    assert heartbeat.problem(None) is None
    assert heartbeat.problem(os.getppid()) is None
    assert heartbeat.problem(os.getppid() + 1) == (
        f"torchrun, process {os.getppid() + 1}, has ended without its workers",
        "it was killed or its machine is gone; start it again with --resume",
    )


class Gone(HashStore):
    """A store whose server was killed."""

    def set(self, key: str, value: str) -> None:  # noqa: ARG002 - the interface
        """Raise what a TCPStore raises then."""
        raise DistNetworkError("failed to send: Connection reset by peer\nException raised from")


def test_a_store_that_does_not_answer_is_a_problem() -> None:
    """The process that serves it, on this or another machine, was killed."""
    problem = Heartbeat(Gone(), 0, 1, patience=60.0).problem(None)

    assert problem is not None
    assert problem[0] == (
        "the store of torchrun does not answer: failed to send: Connection reset by peer"
    )


def test_a_single_process_sends_no_heartbeat() -> None:
    """It has no store."""
    stop = StopRequest()
    with watched(World(), 10.0, stop):
        assert not stop.signal


def test_a_request_to_stop_reaches_the_others() -> None:
    """Of a process that got a signal; the others do as if they had got it."""
    store = HashStore()
    first, second = (Heartbeat(store, rank, 2, patience=60.0) for rank in (0, 1))
    asked, other = StopRequest(), StopRequest()

    second.share(other)
    assert other.signal == 0
    asked.signal = signal.SIGTERM
    first.share(asked)
    second.share(other)

    assert other.signal == signal.SIGTERM


@pytest.mark.slow
def test_a_stopped_process_is_named(bench: Bench) -> None:
    """SIGSTOP: torchrun sees a process that lives; the other one ends within the patience."""
    bench.file.write_text(bench.file.read_text().replace('"updates": 12', '"updates": 100000'))
    settings = ("--set=parallel.patience=10", "--set=evaluate.every=100000")
    command = bench.command("stopped", 2, *settings)
    log = bench.folder / "stopped.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=file, env=ENVIRONMENT, start_new_session=True
        )
    try:
        history = bench.folder / "stopped" / "metrics.jsonl"
        while process.poll() is None and not (history.is_file() and history.stat().st_size):
            time.sleep(0.2)
        victim = _worker_of(process.pid, rank=1)
        os.kill(victim, signal.SIGSTOP)
        code = process.wait(HUNG)
    finally:
        os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None

    assert code != 0
    assert f"process 1, pid {victim}" in log.read_text()


def _worker_of(launcher: int, *, rank: int) -> int:
    """Return the process id of a worker of torchrun, by the rank in its environment."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            found = path.read_bytes().split(b"\0")
            parent = int((path.parent / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if parent == launcher and f"RANK={rank}".encode() in found:
            return int(path.parent.name)
    raise AssertionError(rank)


@pytest.mark.slow
def test_the_workers_of_a_killed_torchrun_end(bench: Bench) -> None:
    """SIGKILL of torchrun, which serves the store: no worker is left, and the run can be resumed.

    The seconds that pass are bounded by the time-out of the wait, which is long enough for a
    loaded machine.
    """
    text = bench.file.read_text()
    bench.file.write_text(text.replace('"updates": 12', '"updates": 100000'))
    log = bench.folder / "orphaned.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            bench.command("orphaned", 2, "--set=evaluate.every=100000"),
            stdout=file,
            stderr=file,
            env=ENVIRONMENT,
            start_new_session=True,
        )
    workers: list[int] = []
    try:
        saved = bench.folder / "orphaned" / "checkpoints"
        while process.poll() is None and not any(saved.glob("[0-9]*")):
            time.sleep(0.1)
        workers = [_worker_of(process.pid, rank=rank) for rank in (0, 1)]
        process.kill()
        process.wait()
        late = time.monotonic() + 90
        while any(map(_is_running, workers)) and time.monotonic() < late:
            time.sleep(0.2)
        left = [worker for worker in workers if _is_running(worker)]
    finally:
        for one in (process.pid, *filter(_is_running, workers)):  # each has its own session
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        bench.file.write_text(text)

    assert left == []
    assert "torchrun, process" in log.read_text()
    assert "start it again with --resume" in log.read_text()
    newest = sorted(saved.glob("[0-9]*"))[-1].name
    updates = int(newest) + 2
    resumed = bench.train("orphaned", 2, updates=updates)
    straight = bench.train("straight", 2, updates=updates)
    last = f"{updates:06d}"
    mine, other = tensors(resumed, last), tensors(straight, last)
    assert mine.keys() == other.keys()
    assert all(mine[name].equal(other[name]) for name in other)


def _is_running(process: int) -> bool:
    """Return whether a process exists and has not ended."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
