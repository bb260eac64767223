"""Sharded checkpoints: each process writes its shards; any number of processes can read them.

The files are written and read by torch.distributed.checkpoint in its safetensors format.  Its
default format contains a pickle, and opening a checkpoint must not execute any code.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from ....specs.findings import InputError
from ...checkpoint.manifest import DamagedError, write_part
from ...checkpoint.saving import Contents, finish, new_folder
from .world import World


def save_sharded(
    folder: Path,
    contents: Contents,
    weights: Mapping[str, Tensor],
    moments: Mapping[str, Tensor],
    world: World,
) -> None:
    """Write a sharded checkpoint; all processes must call this.

    Args:
        folder: must be on a file system that all processes share.
        contents: contents of the checkpoint except the tensors.
        weights: weights, as sharded on this process.
        moments: optimizer state, as sharded on this process.
        world: the processes.

    Raises:
        InputError: the disk is full or the folder cannot be written.
    """
    try:
        with world.main_process_first():
            partial = (
                new_folder(folder) if world.is_main_process else folder.with_name(_hidden(folder))
            )
        _write(partial / "weights", weights, world)
        _write(partial / "optimizer", moments, world)
        world.wait()
        write_part(partial, world.rank, world.size)
        world.wait()
        if world.is_main_process:
            finish(partial, folder, contents)
    except (OSError, SafetensorError, CheckpointException) as error:
        raise InputError(
            f"cannot write the checkpoint: {error}",
            place=str(folder),
            help="free disk space and use --resume; earlier checkpoints are complete",
        ) from error


def _hidden(folder: Path) -> str:
    return f".{folder.name}.partial"


def _write(folder: Path, tensors: Mapping[str, Tensor], world: World) -> None:
    """Write shards; a scalar is written as a vector of size 1, which can have an offset."""
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    shards: dict[str, Any] = {n: t.reshape(1) if t.dim() == 0 else t for n, t in tensors.items()}
    with warnings.catch_warnings():
        if world.size == 1:  # torch warns that there is only one process
            warnings.simplefilter("ignore", UserWarning)
        save(shards, storage_writer=writer, no_dist=world.size == 1)


def load_sharded(folder: Path, like: Mapping[str, Tensor], world: World) -> dict[str, Tensor]:
    """Read tensors of a sharded checkpoint; all processes must call this.

    The number of processes may differ from the number that wrote the checkpoint.

    Args:
        folder: folder `weights` or `optimizer` of a checkpoint.
        like: tensors with the names, shapes and sharding of the result; not changed.
        world: the processes.

    Raises:
        InputError: a tensor is missing, or a file is damaged.
    """
    found: dict[str, Any] = {
        name: torch.empty_like(t.reshape(1) if t.dim() == 0 else t) for name, t in like.items()
    }
    try:
        reader = HuggingFaceStorageReader(str(folder))
        load(found, storage_reader=reader, no_dist=world.size == 1)
    except (OSError, SafetensorError, ValueError, KeyError, CheckpointException) as error:
        raise DamagedError(
            f"the shards are damaged, cut off or belong to another graph: {error}",
            place=str(folder),
            help="use an older checkpoint of the run",
        ) from error
    return {name: t.reshape(()) if like[name].dim() == 0 else t for name, t in found.items()}
