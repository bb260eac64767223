"""Process group of a training: ranks, collectives and the start by torchrun.

torchrun starts the processes and sets the rank of each in its environment.  Without torchrun
there is one process, and all collectives do nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import PrefixStore, Store, _set_pg_timeout
from torch.distributed.rendezvous import rendezvous

from ....specs.findings import InputError
from .parallel_settings import ParallelSettings

PATIENCE = timedelta(hours=2)
"""Timeout of collectives during training: the other processes wait while the main process
validates or prepares data.  torchrun notices a process that died at once and ends the others."""
MEETING = timedelta(minutes=3)
"""Timeout of the rendezvous at the start, after which torchrun may restart the processes."""
LAUNCH = "launch"
"""File in the folder of a run with the name of the torchrun job that trains it."""


@dataclass(frozen=True, slots=True)
class World:
    """The processes of a training, seen from one of them."""

    rank: int = 0
    """Rank of this process among all; rank 0 is the main process."""
    size: int = 1
    """Number of processes."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    """Device of this process."""
    store: Store | None = field(default=None, repr=False)
    """Keys and values that the processes share; None for a single process."""
    mesh: DeviceMesh | None = None
    """The processes as a mesh `data` x `tensor`; None for a single process."""

    @property
    def is_main_process(self) -> bool:
        """Whether this is the main process, which logs, validates and writes files."""
        return self.rank == 0

    @property
    def data_parallel_size(self) -> int:
        """Number of groups of processes that read different batches."""
        return 1 if self.mesh is None else self.mesh["data"].size()

    @property
    def data_parallel_rank(self) -> int:
        """Index of the data-parallel group of this process."""
        return 0 if self.mesh is None else self.mesh["data"].get_local_rank()

    def summed(self, values: Tensor) -> Tensor:
        """All-reduce a tensor in place: its sum over the data-parallel groups."""
        if self.mesh is not None:
            dist.all_reduce(values, group=self.mesh["data"].get_group())
        return values

    def largest(self, *values: float) -> list[float]:
        """Return the maximum of each number over all processes."""
        if self.size == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        maxima: list[float] = tensor.tolist()
        return maxima

    def broadcast(self, value: Any) -> Any:
        """Return the value of the main process on every process.

        The value must be JSON-compatible: received data is parsed as JSON, never executed.
        """
        if self.size == 1:
            return value
        data = json.dumps(value).encode() if self.is_main_process else b""
        length = torch.tensor([len(data)], device=self.device)
        dist.broadcast(length, 0)
        buffer = torch.empty(int(length.item()), dtype=torch.uint8, device=self.device)
        if self.is_main_process:
            buffer.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        dist.broadcast(buffer, 0)
        return json.loads(bytes(buffer.cpu().tolist()))

    def wait(self) -> None:
        """Wait until every process has called this (a barrier)."""
        if self.size > 1:
            self.largest(0.0)

    @contextmanager
    def main_process_first(self) -> Iterator[None]:
        """Run the body on the main process first, then on the others."""
        if not self.is_main_process:
            self.wait()
        yield
        if self.is_main_process:
            self.wait()


def launched() -> bool:
    """Return whether torchrun started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def is_main_process() -> bool:
    """Return whether this is the main process; works before a `World` exists."""
    return not launched() or os.environ["RANK"] == "0"


@contextmanager
def world(device: torch.device, settings: ParallelSettings) -> Iterator[World]:
    """Join the process group that torchrun started, if any.

    Args:
        device: device of the run; each process of a machine uses a CUDA device of its own.
        settings: data and tensor parallelism.

    Raises:
        InputError: the processes do not divide into groups of `tensor`, or there are too few
            devices.
    """
    if not launched():
        if settings.tensor > 1:
            raise InputError(
                f"'tensor' is {settings.tensor}, but there is only one process",
                location="/parallel/tensor",
                help=f"start it with torchrun --nproc-per-node {settings.tensor} -m weft train ...",
            )
        yield World(device=device)
        return
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if size % settings.tensor:
        raise InputError(
            f"{size} processes do not divide into groups of {settings.tensor}",
            location="/parallel/tensor",
            help="start a multiple of it, or set 'parallel.tensor' to another number",
        )
    if device.type == "cuda":
        if local >= torch.cuda.device_count():
            raise InputError(
                f"process {local} of this machine has no CUDA device: there are only"
                f" {torch.cuda.device_count()}",
                help="start one process per device on each machine, or set 'device' to 'cpu'",
            )
        torch.cuda.set_device(local)
        device = torch.device("cuda", local)
    store, _, _ = next(rendezvous("env://", timeout=MEETING))
    group_store = meet(PrefixStore("weft", store), rank, size, MEETING)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=group_store,
        rank=rank,
        world_size=size,
        timeout=MEETING,
    )
    try:
        mesh = init_device_mesh(
            device.type,
            (size // settings.tensor, settings.tensor),
            mesh_dim_names=("data", "tensor"),
        )
        for group in (None, mesh["data"].get_group(), mesh["tensor"].get_group()):
            _set_pg_timeout(PATIENCE, group)
        yield World(rank, size, device, group_store, mesh)
    finally:
        dist.destroy_process_group()


def resumes_by_itself(folder: Path, world: World, *, refused: bool) -> bool:
    """Return whether torchrun restarted this process, so that the run resumes automatically.

    torchrun restarts all processes when one has died, and when machines join or leave.  The
    main process writes the name of its torchrun job into the folder of a run that it starts.

    Args:
        folder: folder of the run.
        world: the processes.
        refused: whether the run is refused unless it resumes by itself, because the folder and the
            user's request to begin or to resume do not fit.
    """
    if not launched():
        return False
    restarted = False
    if world.is_main_process:
        # A torchrun without a job name is identified by its process, the parent of this one.
        job = os.environ.get("TORCHELASTIC_RUN_ID", "none")
        name = f"{job} {os.getppid()}" if job == "none" else job
        path = folder / LAUNCH
        restarted = path.is_file() and path.read_text().strip() == name
        if not restarted and not refused:
            folder.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial")
            partial.write_text(name + "\n")
            partial.replace(path)
    resume: bool = world.broadcast(restarted)
    return resume


def signal_name(number: float) -> str:
    """Return the name of a signal, or "" for 0."""
    return signal.Signals(int(number)).name if number else ""


_PAUSE = 0.02
"""Seconds between two polls of the store."""


def meet(store: Store, rank: int, size: int, patience: timedelta) -> PrefixStore:
    """Return a store with a key prefix that only the processes of this start use.

    Args:
        store: may contain entries of earlier starts.
        rank: rank of this process.
        size: number of processes.
        patience: timeout.

    Raises:
        InputError: not all processes arrived before the timeout.
    """
    own_name = secrets.token_hex(8)
    deadline = time.monotonic() + patience.total_seconds()
    store.set(f"here/{rank}", own_name)
    prefix = ""
    while time.monotonic() < deadline:
        if rank == 0:
            prefix = _publish(store, size)
            if prefix and store.check([f"{prefix}/{other}" for other in range(1, size)]):
                store.set(f"{prefix}/open", "")
                return PrefixStore(prefix, store)
        else:
            prefix = _published(store, rank, own_name) or prefix
            if prefix:
                store.set(f"{prefix}/{rank}", "")
                if store.check([f"{prefix}/open"]):
                    return PrefixStore(prefix, store)
        time.sleep(_PAUSE)
    raise InputError(
        f"process {rank} of {size} did not reach all others within"
        f" {patience.total_seconds():.0f} s",
        help="check the other processes for errors; torchrun --max-restarts tries again",
    )


def _publish(store: Store, size: int) -> str:
    """Publish the current names of all ranks; return the prefix derived from them, or ""."""
    keys = [f"here/{other}" for other in range(size)]
    if not store.check(keys):
        return ""
    names = [store.get(key).decode() for key in keys]
    prefix = hashlib.sha256(" ".join(names).encode()).hexdigest()[:16]
    store.set("met", json.dumps({"prefix": prefix, "names": names}))
    return prefix


def _published(store: Store, rank: int, own_name: str) -> str:
    """Return the prefix that rank 0 published, or "" if it does not include this process."""
    if not store.check(["met"]):
        return ""
    met = json.loads(store.get("met"))
    names = met["names"]
    return str(met["prefix"]) if rank < len(names) and names[rank] == own_name else ""
