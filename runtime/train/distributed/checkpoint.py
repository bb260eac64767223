"""Sharded checkpoints: each process writes its part, and any number of them reads it.

Written and read by torch.distributed.checkpoint in its form for safetensors: its usual form
keeps a pickle, and opening a checkpoint must run nothing.
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
from ...checkpoint.checkpoint import Contents, finish, new_folder
from .world import World


def save_sharded(
    folder: Path,
    contents: Contents,
    weights: Mapping[str, Tensor],
    moments: Mapping[str, Tensor],
    world: World,
) -> None:
    """Write a checkpoint of which each process holds a part; all must call it.

    Args:
        folder: all processes must see it.
        contents: what goes into it beside tensors.
        weights: as this process holds them.
        moments: what the optimizer remembers, likewise.
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
        if world.is_main_process:
            finish(partial, folder, contents)
    except (OSError, SafetensorError, CheckpointException) as error:
        raise InputError(
            f"cannot write the checkpoint: {error}",
            place=str(folder),
            help="free some space and use --resume; the checkpoints written before are whole",
        ) from error


def _hidden(folder: Path) -> str:
    return f".{folder.name}.partial"


def _write(folder: Path, tensors: Mapping[str, Tensor], world: World) -> None:
    """Write parts; a number alone is written as a row of one, which has a beginning."""
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    held: dict[str, Any] = {n: t.reshape(1) if t.dim() == 0 else t for n, t in tensors.items()}
    with warnings.catch_warnings():
        if world.size == 1:  # torch tells that there is one process, which we know
            warnings.simplefilter("ignore", UserWarning)
        save(held, storage_writer=writer, no_dist=world.size == 1)


def load_sharded(folder: Path, like: Mapping[str, Tensor], world: World) -> dict[str, Tensor]:
    """Read what `save_sharded` wrote, however many processes wrote it; all must call it.

    Args:
        folder: `weights` or `optimizer` of a checkpoint.
        like: tensors that are spread as those that are wanted; they stay as they are.
        world: the processes.

    Raises:
        InputError: a tensor is missing, or a file is damaged.
    """
    wanted: dict[str, Any] = {
        name: torch.empty_like(t.reshape(1) if t.dim() == 0 else t) for name, t in like.items()
    }
    try:
        reader = HuggingFaceStorageReader(str(folder))
        load(wanted, storage_reader=reader, no_dist=world.size == 1)
    except (OSError, SafetensorError, ValueError, KeyError, CheckpointException) as error:
        raise InputError(
            f"the shards are damaged, cut off or of another graph: {error}",
            place=str(folder),
            help="use an older checkpoint of the run",
        ) from error
    return {name: t.reshape(()) if like[name].dim() == 0 else t for name, t in wanted.items()}
