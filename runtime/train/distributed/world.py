"""Process group of a training: ranks, collectives and the start by torchrun.

torchrun starts the processes and sets the rank of each in its environment.  Without torchrun
there is one process, and all collectives do nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
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
prepares data or measures predictions.  torchrun notices a process that died at once and ends the
others."""
MEETING = timedelta(minutes=3)
"""Timeout of the rendezvous at the start, after which torchrun may restart the processes."""
MAIN, OTHER = "main", "other"
"""Keys of the error of the main process, and of one of another process."""
LAUNCH = "launch"
"""File in the folder of a run with the name of the torchrun job that trains it, and a nonce of its
newest start."""


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
    replicas: DeviceMesh | None = None
    """The same processes as a mesh `replicate` x `shard` x `tensor`, if groups of them replicate
    the sharded weights."""

    @property
    def is_main_process(self) -> bool:
        """Whether this is the main process, which logs, measures predictions and writes files."""
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
        return json.loads(bytes(buffer.cpu().numpy()))

    def gathered(self, value: Any) -> list[Any]:
        """Return the value of each process, by rank, on the main process; nothing on the others.

        The values must be JSON-compatible, as for `broadcast`.
        """
        if self.size == 1:
            return [value]
        data = json.dumps(value).encode()
        [longest] = self.largest(len(data))
        mine = torch.zeros(8 + int(longest), dtype=torch.uint8)
        mine[: 8 + len(data)].copy_(
            torch.frombuffer(bytearray(len(data).to_bytes(8, "little") + data), dtype=torch.uint8)
        )
        mine = mine.to(self.device)
        parts = [torch.empty_like(mine) for _ in range(self.size)] if self.is_main_process else None
        dist.gather(mine, parts, 0)
        texts = (bytes(part.cpu().numpy()) for part in parts or ())
        return [json.loads(text[8 : 8 + int.from_bytes(text[:8], "little")]) for text in texts]

    def on_main(self, function: Callable[[], Any]) -> Any:
        """Return what a function returns on the main process, on every process.

        Args:
            function: called on the main process; its result must be JSON-compatible.

        Raises:
            InputError: the function raised one.
            FailedElsewhereError: this is another process, and the function raised one.
        """
        error, value = None, None
        if self.is_main_process:
            try:
                value = function()
            except InputError as raised:
                error = raised
        failed, value = self.broadcast([error is not None, value])
        if error is not None:
            raise error
        if failed:
            raise FailedElsewhereError
        return value

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


def launcher_store() -> Store:
    """Return the store that torchrun, or the main process, serves for all processes."""
    return _store(os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", ""))


@cache
def _store(address: str, port: str) -> Store:
    """Return the store of an address, to which a process connects once."""
    del address, port  # they are in the environment
    store: Store = next(rendezvous("env://", timeout=MEETING))[0]
    return store


def errors() -> Store:
    """Return the store of the errors of this start, by `MAIN` and `OTHER`."""
    start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return PrefixStore(f"weft-errors-{start}", launcher_store())


def failed_elsewhere() -> bool:
    """Return whether a process has reported an error."""
    store = errors()
    return bool(store.check([MAIN]) or store.check([OTHER]))


class FailedElsewhereError(InputError):
    """An error that another process has reported, so that this one ends without a message."""

    def __init__(self) -> None:
        """Say where the message is."""
        super().__init__("another process of the training has failed", help="see its message")


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
                help=f"set 'parallel.processes' to {settings.tensor} or a multiple of it, or start"
                " it with torchrun",
            )
        yield World(device=device)
        return
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if settings.processes not in (None, size):
        raise InputError(
            f"'processes' is {settings.processes}, but torchrun has started {size}",
            location="/parallel/processes",
            help="leave it out with torchrun, or start the run without torchrun",
        )
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if size % settings.tensor:
        raise InputError(
            f"{size} processes do not divide into groups of {settings.tensor}",
            location="/parallel/tensor",
            help="start a multiple of it, or set 'parallel.tensor' to another number",
        )
    shard = settings.shard or size // settings.tensor
    if size // settings.tensor % shard:
        raise InputError(
            f"{size // settings.tensor} data-parallel processes do not divide into groups of"
            f" {shard}",
            location="/parallel/shard",
            help="start a multiple of it, or set 'parallel.shard' to another number",
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
    group_store = meet(PrefixStore("weft", launcher_store()), rank, size, MEETING, failed_elsewhere)
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
        replicas = None
        if shard < size // settings.tensor:
            replicas = init_device_mesh(
                device.type,
                (size // settings.tensor // shard, shard, settings.tensor),
                mesh_dim_names=("replicate", "shard", "tensor"),
            )
        meshes = (mesh,) if replicas is None else (mesh, replicas)
        for group in (None, *(group for some in meshes for group in some.get_all_groups())):
            _set_pg_timeout(PATIENCE, group)
        yield World(rank, size, device, group_store, mesh, replicas)
    finally:
        dist.destroy_process_group()


def restarted(folder: Path) -> bool:
    """Return whether torchrun restarted this process, the main one, in a run that it has started.

    torchrun restarts all processes when one has died, and when machines join or leave.  The
    main process writes the name of its torchrun job into the folder of a run that it starts.
    """
    path = folder / LAUNCH
    return (
        "TORCHELASTIC_RUN_ID" in os.environ
        and path.is_file()
        and path.read_text().split()[:-1] == _job()
    )


def _job() -> list[str]:
    """Return the name of the torchrun job; without one, also the process of torchrun."""
    job = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    return [job, str(os.getppid())] if job == "none" else [*job.split()]


def share_folder(folder: Path, world: World) -> None:
    """Check that all processes use the same folder, by a nonce that the main process writes.

    Raises:
        InputError: a process does not see the nonce, so the folder is another one there.
    """
    if world.size == 1 and not launched():
        return
    nonce, path = secrets.token_hex(8), folder / LAUNCH
    if world.is_main_process:
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(" ".join([*_job(), nonce]) + "\n")
        partial.replace(path)
    nonce = world.broadcast(nonce)
    deadline = time.monotonic() + _VISIBLE
    while not (shared := _last_word(path) == nonce) and time.monotonic() < deadline:
        time.sleep(_PAUSE)
    hosts = sorted({*world.gathered("" if shared else socket.gethostname())} - {""})

    def refuse() -> None:
        if not hosts:
            return
        raise InputError(
            "the folder of the run is not shared: what the main process writes into it cannot be"
            f" read on {', '.join(hosts)}",
            location=str(folder),
            help="give a folder with --out that is on a file system which all machines share",
        )

    world.on_main(refuse)


def _last_word(path: Path) -> str:
    try:
        return (path.read_text().split() or [""])[-1]
    except OSError:
        return ""


_VISIBLE = 10.0
"""Seconds within which a network file system must show a new file to other machines."""
_PAUSE = 0.02
"""Seconds between two polls of the store."""


def meet(
    store: Store,
    rank: int,
    size: int,
    patience: timedelta,
    failed: Callable[[], bool] = lambda: False,
) -> PrefixStore:
    """Return a store with a key prefix that only the processes of this start use.

    Args:
        store: may contain entries of earlier starts.
        rank: rank of this process.
        size: number of processes.
        patience: timeout.
        failed: returns whether a process has reported an error, so that it will not arrive.

    Raises:
        InputError: not all processes arrived before the timeout.
        FailedElsewhereError: another process has reported an error.
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
        if failed():
            raise FailedElsewhereError
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
