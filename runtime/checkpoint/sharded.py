"""Reading of sharded checkpoints in one process, without executing code from them.

A sharded checkpoint is a folder of safetensors files, as torch.distributed.checkpoint writes
them; JSON metadata gives the offset of each shard in its tensor.  Any number of processes may
have written the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from .manifest import DamagedError

_WHERE = "DCP_SHARDING_INFO"
"""Key of the file metadata under which torch stores the offsets of shards."""


def read_shards(folder: Path) -> dict[str, Tensor]:
    """Return the full tensors of a folder of shards.

    Raises:
        DamagedError: there are no tensors, a file is damaged or cut off, or shards are missing.
    """
    parts: dict[str, list[tuple[tuple[int, ...], Tensor]]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            for name, begin, part in _parts(path):
                parts.setdefault(name, []).append((begin, part))
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            raise _damaged(path, str(error)) from error
    if not parts:
        raise _damaged(folder, "the folder contains no tensors")
    return {name: _joined(folder, name, shards) for name, shards in parts.items()}


def _parts(path: Path) -> Iterator[tuple[str, tuple[int, ...], Tensor]]:
    """Yield the name, the offsets and the data of each shard of a file."""
    with safe_open(path, "pt") as file:
        where: dict[str, Any] = json.loads((file.metadata() or {}).get(_WHERE, "{}"))
        for name in file.keys():  # noqa: SIM118 - a file is not a mapping
            part = file.get_tensor(name)
            begin = tuple(where[name]["saved_offsets"]) if where else (0,) * part.dim()
            if len(begin) != part.dim() or not all(type(at) is int and at >= 0 for at in begin):
                msg = f"'{name}' has the invalid offsets {begin}"
                raise ValueError(msg)
            yield name, begin, part


def _joined(folder: Path, name: str, parts: list[tuple[tuple[int, ...], Tensor]]) -> Tensor:
    """Assemble a tensor from its shards."""
    first = parts[0][1]
    if any(p.dim() != first.dim() or p.dtype != first.dtype for _, p in parts):
        raise _damaged(folder, f"shards of '{name}' differ in dtype or number of axes")
    shape = [max(at[axis] + part.size(axis) for at, part in parts) for axis in range(first.dim())]
    if sum(part.numel() for _, part in parts) != prod(shape):
        raise _damaged(folder, f"shards of '{name}' are missing")
    full = torch.empty(shape, dtype=first.dtype)
    for at, part in parts:
        full[tuple(slice(b, b + n) for b, n in zip(at, part.shape, strict=True))] = part
    return full


def _damaged(path: Path, why: str) -> DamagedError:
    return DamagedError(
        f"the shards are damaged or cut off: {why}",
        location=str(path),
        help="use an older checkpoint of the run",
    )
