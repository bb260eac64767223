"""World: the processes of one training, and how they agree.

torchrun starts them and says in the environment who is who.  Without it there is one
process, and everything here does nothing.
"""

from __future__ import annotations

import json
import os
import signal
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
from torch.distributed.distributed_c10d import PrefixStore, _set_pg_timeout
from torch.distributed.rendezvous import rendezvous

from ....specs.findings import InputError
from .rendezvous import meet
from .settings import ParallelSettings

PATIENCE = timedelta(hours=2)
"""How long processes wait for the first, which validates and prepares alone.  A process that
died is noticed at once by torchrun, which ends the others."""
MEETING = timedelta(minutes=3)
"""How long they wait for one another at the start, before they give up, to be started anew."""
LAUNCH = "launch"
"""File in a run's folder that names the torchrun that trains it."""


@dataclass(frozen=True, slots=True)
class World:
    """The processes of a training, seen from one of them."""

    rank: int = 0
    """Which process this is, of all; 0 leads: it alone prints, validates and writes."""
    size: int = 1
    """How many processes there are."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    """Where this process computes."""
    mesh: DeviceMesh | None = None
    """They as `data` x `tensor`; None where there is one process."""

    @property
    def is_main_process(self) -> bool:
        """Whether this is the process that prints, validates and writes."""
        return self.rank == 0

    @property
    def data_parallel_size(self) -> int:
        """How many groups of processes read different batches."""
        return 1 if self.mesh is None else self.mesh["data"].size()

    @property
    def data_parallel_rank(self) -> int:
        """Which of them this process belongs to."""
        return 0 if self.mesh is None else self.mesh["data"].get_local_rank()

    def summed(self, values: Tensor) -> Tensor:
        """Return the sum of a tensor over those who read different batches."""
        if self.mesh is not None:
            dist.all_reduce(values, group=self.mesh["data"].get_group())
        return values

    def largest(self, *values: float) -> list[float]:
        """Return the largest of each number over all processes."""
        if self.size == 1:
            return list(values)
        held = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(held, dist.ReduceOp.MAX)
        found: list[float] = held.tolist()
        return found

    def broadcast(self, value: Any) -> Any:
        """Return, on every process, what the leading one has; plain data.

        Sent as JSON: nothing that arrives is run.
        """
        if self.size == 1:
            return value
        data = json.dumps(value).encode() if self.is_main_process else b""
        length = torch.tensor([len(data)], device=self.device)
        dist.broadcast(length, 0)
        room = torch.empty(int(length.item()), dtype=torch.uint8, device=self.device)
        if self.is_main_process:
            room.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        dist.broadcast(room, 0)
        return json.loads(bytes(room.cpu().tolist()))

    def wait(self) -> None:
        """Wait until every process is here."""
        if self.size > 1:
            self.largest(0.0)

    @contextmanager
    def main_process_first(self) -> Iterator[None]:
        """Let the leading process do something alone, then the others."""
        if not self.is_main_process:
            self.wait()
        yield
        if self.is_main_process:
            self.wait()


def launched() -> bool:
    """Say whether torchrun started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def is_main_process() -> bool:
    """Say whether this is the process that prints and writes, also before a world is made."""
    return not launched() or os.environ["RANK"] == "0"


@contextmanager
def world(device: torch.device, settings: ParallelSettings) -> Iterator[World]:
    """Join the other processes that torchrun started, if it did.

    Args:
        device: where this run computes; each process of a machine takes a CUDA device
            of its own.
        settings: how they divide the work.

    Raises:
        InputError: they do not divide into groups of `tensor`, or there are too few devices.
    """
    if not launched():
        if settings.tensor > 1:
            raise InputError(
                f"{settings.tensor} processes are to divide each layer, and there is one",
                place="/parallel/tensor",
                help=f"start it by torchrun --nproc-per-node {settings.tensor} -m weft train ...",
            )
        yield World(device=device)
        return
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if size % settings.tensor:
        raise InputError(
            f"{size} processes do not divide into groups of {settings.tensor}",
            place="/parallel/tensor",
            help="start a multiple of it, or set another",
        )
    if device.type == "cuda":
        if local >= torch.cuda.device_count():
            raise InputError(
                f"process {local} of this machine finds {torch.cuda.device_count()} CUDA devices",
                help="start as many processes a machine as it has devices, or set device=cpu",
            )
        torch.cuda.set_device(local)
        device = torch.device("cuda", local)
    store, _, _ = next(rendezvous("env://", timeout=MEETING))
    room = meet(PrefixStore("weft", store), rank, size, MEETING)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=room,
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
        yield World(rank, size, device, mesh)
    finally:
        dist.destroy_process_group()


def goes_on(folder: Path, here: World, *, begun: bool) -> bool:
    """Say whether torchrun restarted us, so that the run goes on without being told to.

    It restarts all processes when one has died, and when machines come or go.  The
    leading process leaves the name of its torchrun in the folder of a run that it begins.

    Args:
        folder: the run's.
        here: the processes.
        begun: whether somebody has begun the run already, and we were not told to go on.
    """
    if not launched():
        return False
    again = False
    if here.is_main_process:
        # A torchrun without a name is known by its process, which starts ours.
        job = os.environ.get("TORCHELASTIC_RUN_ID", "none")
        name = f"{job} {os.getppid()}" if job == "none" else job
        path = folder / LAUNCH
        again = path.is_file() and path.read_text().strip() == name
        if not again and not begun:
            folder.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial")
            partial.write_text(name + "\n")
            partial.replace(path)
    found: bool = here.broadcast(again)
    return found


def signal_name(number: float) -> str:
    """Return the name of a signal, and nothing for 0."""
    return signal.Signals(int(number)).name if number else ""
