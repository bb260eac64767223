"""Tests of reading sharded checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from weft.runtime.checkpoint.checkpoint import read_shards
from weft.runtime.checkpoint.manifest import Manifest
from weft.specs.findings import InputError

WHOLE = torch.arange(24.0).reshape(6, 4)


def write(folder: Path, number: int, part: Any, begin: Any, name: str = "w") -> None:
    """Write one shard in torch's format."""
    where = {"DCP_SHARDING_INFO": json.dumps({name: {"saved_offsets": begin}})}
    (folder / "weights").mkdir(exist_ok=True)
    path = folder / "weights" / f"shard-{number:05d}.safetensors"
    save_file({name: part.contiguous()}, path, where)


def test_parts_are_put_together(tmp_path: Path) -> None:
    """Shards by rows and by columns are assembled."""
    write(tmp_path, 1, WHOLE[:3], [0, 0])
    write(tmp_path, 2, WHOLE[3:, :1], [3, 0])
    write(tmp_path, 3, WHOLE[3:, 1:], [3, 1])

    assert torch.equal(read_shards(Manifest(tmp_path), "weights")["w"], WHOLE)


@pytest.mark.parametrize(
    ("begin", "why"),
    [
        ([4, 0], "missing"),
        ([-3, 0], "invalid offsets"),
        ([3], "invalid offsets"),
        (["3", 0], "invalid offsets"),
    ],
)
def test_parts_that_do_not_fit_are_refused(tmp_path: Path, begin: Any, why: str) -> None:
    """A hole, a negative offset, too few offsets and an offset that is not a number are errors."""
    write(tmp_path, 1, WHOLE[:3], [0, 0])
    write(tmp_path, 2, WHOLE[3:], begin)

    with pytest.raises(InputError, match=why):
        read_shards(Manifest(tmp_path), "weights")


def test_a_missing_or_cut_off_file_is_refused(tmp_path: Path) -> None:
    """Damaged and empty folders are errors that say how to fix them."""
    write(tmp_path, 1, WHOLE, [0, 0])
    path = tmp_path / "weights/shard-00001.safetensors"
    path.write_bytes(path.read_bytes()[:-5])

    with pytest.raises(InputError, match="damaged or cut off") as caught:
        read_shards(Manifest(tmp_path), "weights")
    assert caught.value.help == "use an older checkpoint of the run"
    with pytest.raises(InputError, match="no tensors"):
        read_shards(Manifest(tmp_path), "nothing")
