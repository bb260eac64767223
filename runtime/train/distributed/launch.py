"""Start of the processes of a run on this machine, without torchrun.

This process becomes the main one, and starts the others with the command `weft train`.  It serves
the store through which they find each other.  If one ends, all end.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch._C._distributed_c10d import TCPStore

from ....specs.findings import InputError
from ...system.processes import cores, watching
from .heartbeat import LAUNCHED
from .world import OTHER, errors, launched

_HERE = "127.0.0.1"
_PAUSE = 0.5
"""Seconds between two looks at the other processes."""
_END = 60.0
"""Seconds in which the other processes end after the main one."""


@contextmanager
def all_processes(
    run: Mapping[str, Any], size: int, folder: Path, *, threads: int | None, blocks: bool
) -> Iterator[None]:
    """Start the other processes of a run for the block, in which this process is the main one.

    Nothing happens for a run of one process, or if torchrun has started this one.

    Args:
        run: the run, as a file has it.
        size: number of its processes.
        folder: its folder.
        threads: number of CPU threads of each process; None shares out the cores.
        blocks: whether the run has blocks that only this process knows.

    Raises:
        InputError: the other processes could not have the blocks.
    """
    if size == 1 or launched():
        yield
        return
    if blocks:
        raise InputError(
            "the other processes of a run do not have the blocks that were passed to this one",
            location="/parallel/processes",
            help="install the blocks as a package, or remove 'processes'",
        )
    threads = threads or max(1, len(cores()) // size)
    store = TCPStore(_HERE, 0, is_master=True, wait_for_workers=False)
    shared = {
        "MASTER_ADDR": _HERE,
        "MASTER_PORT": str(store.port),
        "WORLD_SIZE": str(size),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    with ExitStack() as stack:
        file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "run.json"
        file.write_text(json.dumps(run), encoding="utf-8")
        others = []
        for rank in range(1, size):
            variables = {"RANK": str(rank), "LOCAL_RANK": str(rank), LAUNCHED: secrets.token_hex(8)}
            process = subprocess.Popen(
                [sys.executable, "-m", "weft", "train", str(file), "--out", str(folder)],
                env={"OMP_NUM_THREADS": str(threads), **os.environ, **shared, **variables},
                stdin=subprocess.DEVNULL,
            )
            stack.callback(_ended, process)
            others.append(process)
        stack.enter_context(_environment({**shared, "RANK": "0", "LOCAL_RANK": "0"}))
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(threads)
        stack.enter_context(watching(lambda: _reported(others), _PAUSE))
        yield


def _reported(processes: Sequence[subprocess.Popen[bytes]]) -> bool:
    """Report a process that has failed to the others, which may wait for it."""
    if not any(process.poll() for process in processes):
        return False
    errors().set(OTHER, "a process has ended")
    return True


def _ended(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a process, which follows that of the main one."""
    failing = sys.exc_info()[0] is not None
    try:
        process.wait(1.0 if failing else _END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment in the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
