"""What processes of a run agree on: answers, errors, batches and restarts."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed import HashStore, TCPStore
from weft.graphs.ir.execution import WeightCasts
from weft.runtime import api
from weft.runtime.data.plans.planning import START, DataPosition
from weft.runtime.data.settings import BatchSettings
from weft.runtime.data.table import Table
from weft.runtime.train.distributed.answers import decoded, encoded
from weft.runtime.train.distributed.failures import reported_once
from weft.runtime.train.distributed.sampler import (
    MicroBatches,
    check_share,
    seed_of,
    stream_micro_batches,
)
from weft.runtime.train.distributed.world import (
    FailedElsewhereError,
    World,
    is_main_process,
    meet,
    restarted,
    share_folder,
)
from weft.runtime.train.engine import mixed_precision
from weft.runtime.train.plan import plan_run
from weft.runtime.train.run import Run
from weft.specs.findings import InputError

from .conftest import ENVIRONMENT, HUNG, Bench


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


@dataclass(frozen=True)
class Branch:
    """A record with parts, as a parse has."""

    label: str
    children: tuple[Any, ...] = ()


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "a text",
        0.1 + 0.2,
        ["tag", "tag"],
        ("a", ["b", ("c",)]),
        {"class": 1, 2: ("pair", "of")},
        Branch("S", (Branch("NP"), "word")),
    ],
)
def test_an_answer_arrives_as_it_was_sent(answer: Any) -> None:
    """Also its types: a list stays a list and a tuple a tuple, inside of a record too."""
    arrived = decoded(json.loads(json.dumps(encoded([answer]))))

    assert arrived == [answer]
    assert repr(arrived) == repr([answer])


def test_an_array_arrives_with_its_dtype() -> None:
    """A number of it becomes a number of Python."""
    values = np.array([[1.5, -2.0]], dtype=np.float32)

    arrived = decoded(json.loads(json.dumps(encoded([values, values[0, 0]]))))

    assert arrived[0].dtype == np.float32
    assert arrived[0].tolist() == [[1.5, -2.0]]
    assert arrived[1] == 1.5


def test_what_cannot_be_sent_is_an_error() -> None:
    """An answer of an unknown type would arrive as something else."""
    with pytest.raises(TypeError, match="answers of the type 'object' cannot be sent"):
        encoded([object()])


@pytest.mark.parametrize("name", ["sys", "weft.specs.findings"])
def test_a_record_of_no_dataclass_is_refused(name: str) -> None:
    """Data name a class, and only a record is made of it."""
    with pytest.raises((TypeError, AttributeError)):
        decoded({"$record": [name, "InputError", {}]})


def errors_of(bench: Bench, *outs: str, more: tuple[str, ...] = ()) -> list[str]:
    """Train the run in processes with folders of their own; return what each prints as errors."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(len(outs))}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "weft", "train", str(bench.file), "--out", out, *more],
            env={**ENVIRONMENT, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, out in enumerate(outs)
    ]
    texts = [process.communicate(timeout=HUNG)[1] for process in processes]
    assert [process.returncode for process in processes] == [1] * len(outs)
    return ["".join(text.partition("error: ")[1:]) for text in texts]


@pytest.mark.slow
def test_processes_without_a_shared_folder_are_refused_at_the_start(bench: Bench) -> None:
    """Otherwise they train, and cannot be restarted; before an update there is no checkpoint."""
    outs = [bench.folder / "first", bench.folder / "second"]

    main, other = errors_of(bench, *map(str, outs))

    assert main.startswith("error: the folder of the run is not shared: what the main process")
    assert f"cannot be read on {socket.gethostname()}" in " ".join(main.split())
    assert "help: give a folder with --out that is on a file system" in main
    assert other == ""
    assert not outs[1].exists()
    assert not (outs[0] / "checkpoints").exists()


@pytest.mark.slow
def test_a_folder_that_holds_a_run_is_refused_once(bench: Bench) -> None:
    """The main process looks; another one might see another folder."""
    out = bench.folder / "taken"
    (out / "checkpoints/000004").mkdir(parents=True)

    main, other = errors_of(bench, str(out), str(out))

    assert main.startswith("error: the folder already holds a run")
    assert other == ""


@pytest.mark.slow
def test_an_error_of_all_is_printed_by_the_main_process(bench: Bench) -> None:
    """A device that does not exist, in each process."""
    out = str(bench.folder / "cuda")

    main, other = errors_of(bench, out, out, more=("--set=device=cuda",))

    assert "CUDA" in main
    assert other == ""


SOON = timedelta(seconds=20)


def together(store: HashStore, size: int, late: float = 0.0) -> list[str]:
    """Run the rendezvous in threads, the last one delayed; return the result of each."""
    found: dict[int, str] = {}

    def join(rank: int) -> None:
        if rank == size - 1:
            time.sleep(late)
        group_store = meet(store, rank, size, SOON)
        if rank == 0:
            group_store.set("token", secrets.token_hex(4))
        found[rank] = group_store.get("token").decode()

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[rank] for rank in range(size)]


@pytest.mark.integration
def test_an_unexpected_error_of_all_is_raised_by_the_main_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So its traceback is printed once; that of another error comes from its own process."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    for name, value in {**variables, "TORCHELASTIC_USE_AGENT_STORE": "True"}.items():
        monkeypatch.setenv(name, value)

    def fail(rank: str, reason: str) -> None:
        monkeypatch.setenv("RANK", rank)
        with reported_once():
            raise ZeroDivisionError(reason)

    with pytest.raises(ZeroDivisionError):
        fail("0", "of all")
    with pytest.raises(FailedElsewhereError):
        fail("1", "of all")
    with pytest.raises(ZeroDivisionError):
        fail("1", "of this process")


def test_each_start_has_its_own_namespace() -> None:
    """The same store serves three starts, the second with fewer processes."""
    store = HashStore()

    rooms = [together(store, size, late) for size, late in ((3, 0.0), (2, 0.2), (3, 0.2))]

    assert [len(set(each)) for each in rooms] == [1, 1, 1]
    assert len({each[0] for each in rooms}) == 3


@pytest.mark.integration
def test_a_dead_process_does_not_count_as_registered() -> None:
    """The others wait until a process has registered again, although its old name is stored."""
    store = HashStore()
    together(store, 2)

    with pytest.raises(InputError, match="process 0 of 2 did not reach all others"):
        meet(store, 0, 2, timedelta(seconds=0.3))
    assert len(set(together(store, 2, 0.3))) == 1


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_weights_are_gathered_in_the_dtype_of_products_and_gradients_summed_in_float32(
    name: Any,
) -> None:
    """Inputs of layers keep their dtype, so the residual stream stays float32."""
    policy = mixed_precision(WeightCasts(name, "fsdp"))

    assert policy.param_dtype == getattr(torch, name)
    assert policy.reduce_dtype == torch.float32
    assert not policy.cast_forward_inputs


def test_in_float32_nothing_is_cast() -> None:
    """The dtypes of weights and gradients are left as they are."""
    policy = mixed_precision(None)

    assert (policy.param_dtype, policy.reduce_dtype, policy.output_dtype) == (None, None, None)


ACCUMULATE = 4
SETTINGS = BatchSettings(tokens=60, pool=3)


@pytest.fixture(scope="module")
def corpus(toy_run_module: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Return the prepared toy corpus."""
    return api.prepare_run(plan_run(toy_run_module(), ""), tmp_path_factory.mktemp("run")).train


def of(
    corpus: Table, which: int, data_parallel_size: int, at: DataPosition = START
) -> Iterator[MicroBatches]:
    """Return the micro-batches of one process."""
    return stream_micro_batches(
        corpus,
        SETTINGS,
        5,
        accumulate=ACCUMULATE,
        at=at,
        share=(which, data_parallel_size),
    )


@pytest.mark.parametrize("data_parallel_size", [2, 3, 4])
def test_processes_together_get_the_batches_of_one(corpus: Table, data_parallel_size: int) -> None:
    """The batches and their numbers are the same, also past the end of an epoch."""
    updates = 20
    alone = list(islice(of(corpus, 0, 1), updates))
    shared = [
        list(islice(of(corpus, which, data_parallel_size), updates))
        for which in range(data_parallel_size)
    ]

    assert alone[-1].at.epoch > 0
    for number, one in enumerate(alone):
        many = [each[number] for each in shared]
        together = sorted(
            ((n, batch.rows.tolist()) for part in many for n, batch in part.batches),
        )
        assert together == [(n, batch.rows.tolist()) for n, batch in one.batches]
        assert {(p.at, p.target_tokens, p.tokens["source"]) for p in many} == {
            (one.at, one.target_tokens, one.tokens["source"])
        }
        assert {p.rounds for p in many} == {max(len(p.batches) for p in many)}


def test_tokens_of_other_ranks_are_counted_without_reading_them(corpus: Table) -> None:
    """The token counts computed from lengths are those of the batches."""
    for micro_batches in islice(of(corpus, 0, 1), 8):
        batches = [batch for _, batch in micro_batches.batches]
        assert micro_batches.target_tokens == sum(batch.tokens["target"] for batch in batches)
        assert micro_batches.tokens["source"] == sum(batch.tokens["source"] for batch in batches)


def test_another_number_of_processes_continues_the_batches(corpus: Table) -> None:
    """Three updates by two processes, then by four, give the batches of one process."""
    alone = list(islice(of(corpus, 0, 1), 6))
    third = next(islice(of(corpus, 1, 2), 2, None))
    rest = [list(islice(of(corpus, w, 4, third.at), 3)) for w in range(4)]

    for number, one in enumerate(alone[3:]):
        rows = [batch.rows for each in rest for _, batch in each[number].batches]
        np.testing.assert_array_equal(
            np.concatenate(rows), np.concatenate([batch.rows for _, batch in one.batches])
        )


def test_batches_of_an_update_drop_different_numbers() -> None:
    """Seeds differ also in their low 32 bits, the only ones that a CPU generator uses."""
    seeds = {
        seed_of(seed, update, batch) % (1 << 32)
        for seed in (1, 2)
        for update in range(1, 2001)
        for batch in range(16)
    }

    assert len(seeds) == 2 * 2000 * 16


def test_the_first_batch_is_seeded_only_by_the_update() -> None:
    """Runs with one batch per update have the dropout that they had before updates were shared."""
    assert seed_of(7, 123, 0) == 7 * 1_000_003 + 123


def test_more_processes_than_batches_are_refused() -> None:
    """More processes than batches are an error that says how to fix it."""
    with pytest.raises(InputError, match="8 processes cannot share the 4 batches") as caught:
        check_share(4, 8)

    assert "set 'accumulate' to a multiple of 8" in caught.value.help
    assert check_share(4, 2) == ""
    assert "1 of them wait" in check_share(8, 3)


def test_dividing_layers_needs_processes(
    toy_run_module: Callable[..., Run], tmp_path: Path
) -> None:
    """`tensor` above 1 is an error without torchrun."""
    run = toy_run_module(parallel={"tensor": 2})

    with pytest.raises(InputError, match="'tensor' is 2, but there is only one process") as caught:
        api.train(run, out=tmp_path)

    assert "set 'parallel.processes' to 2" in caught.value.help
