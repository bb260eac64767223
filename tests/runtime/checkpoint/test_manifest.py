"""The manifest: every file of a checkpoint is what was written, or the checkpoint is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from weft.runtime.checkpoint import manifest
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.train.context import Result
from weft.specs.findings import InputError
from weft.specs.regular_files import DamagedError

pytestmark = pytest.mark.integration

Damage = Callable[[Path], object]


def flip(path: Path) -> None:
    """Change one bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def cut(path: Path) -> None:
    """Cut off the second half of a file."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def zero(path: Path) -> None:
    """Replace the second half of a file by zeros, as a disk may after a power failure."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2].ljust(len(data), b"\0"))


DAMAGES: dict[str, Damage] = {"flipped": flip, "cut off": cut, "zeroed": zero, "gone": Path.unlink}
FILES = (
    "weights.safetensors",
    "optimizer.safetensors",
    "spec.json",
    "run.json",
    "state.json",
    "tokenizer.model",
    "metrics.jsonl",
    "manifest.json",
)
UNCHANGED = ("spec.json", "run.json", "tokenizer.model")
"""Files that have the same contents in all checkpoints of a run."""


@pytest.fixture(scope="module")
def newest(toy_trained: Result) -> Path:
    """Return the newest checkpoint of a barely trained model."""
    assert toy_trained.checkpoint is not None
    return toy_trained.checkpoint


@pytest.fixture
def folder(newest: Path, tmp_path: Path) -> Path:
    """Return a copy of a checkpoint that may be damaged."""
    return Path(shutil.copytree(newest, tmp_path / newest.name))


def test_every_file_has_its_size_and_digest(folder: Path) -> None:
    """The manifest lists all files but itself."""
    listed = json.loads((folder / "manifest.json").read_text())["files"]

    assert {path.name for path in folder.iterdir()} == {*listed, "manifest.json"} == set(FILES)
    assert listed["run.json"] == manifest.digest(folder, "run.json")


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_refused(name: str, damage: Damage, folder: Path) -> None:
    """Weights with a flipped bit would translate nonsense; the message names the file.

    A flipped bit of the manifest itself may make another file look damaged.  A checkpoint without
    optimizer state is complete, but cannot be resumed.
    """
    damage(folder / name)

    gone = damage is Path.unlink and name == "optimizer.safetensors"
    with pytest.raises(InputError if gone else DamagedError) as caught:
        open_checkpoint(folder).optimizer()

    assert gone or name == "manifest.json" or name in str(caught.value)


@pytest.mark.parametrize("name", FILES)
def test_a_swapped_file_is_refused(name: str, newest: Path, folder: Path) -> None:
    """Each file is whole and belongs to the same run and graph; only the digest tells.

    Files that do not change during a run are the same in both checkpoints, and no damage.
    """
    other = sorted(newest.parent.iterdir())[-2] / name
    alike = other.read_bytes() == (folder / name).read_bytes()
    shutil.copyfile(other, folder / name)

    assert alike == (name in UNCHANGED)
    if alike:
        assert open_checkpoint(folder).optimizer()
        return
    with pytest.raises(DamagedError, match="has changed since") as caught:
        open_checkpoint(folder).optimizer()
    assert name in caught.value.location or name == "manifest.json"


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_run_is_refused(name: str, folder: Path) -> None:
    """Also the files that are the same in all checkpoints of a run, such as the spec."""
    data = (folder / name).read_bytes()
    if name.endswith(".json"):
        changed = data.replace(b": ", b":  ", 1)  # another text with the same meaning
    else:
        changed = data[:-1] + bytes([data[-1] ^ 1])
    (folder / name).write_bytes(changed)

    if name == "manifest.json":
        assert open_checkpoint(folder).optimizer(), "its own text is not compared"
        return
    with pytest.raises(DamagedError, match="has changed since") as caught:
        open_checkpoint(folder).optimizer()
    assert name in caught.value.location


def test_a_state_of_another_update_is_refused(newest: Path, folder: Path) -> None:
    """Both belong to the same run and the same graph; only the digest tells them apart."""
    other = newest.parent / "000004"
    shutil.copyfile(other / "state.json", folder / "state.json")

    with pytest.raises(DamagedError, match=r"has changed since .*\n.*state.json"):
        open_checkpoint(folder)


def test_unverified_opening_does_not_read_the_digests(folder: Path) -> None:
    """For huge checkpoints: a flipped bit in the weights is then not noticed."""
    flip(folder / "weights.safetensors")

    assert open_checkpoint(folder, verify=False).weights


def test_a_path_outside_of_the_folder_is_refused(folder: Path) -> None:
    """A manifest from a stranger cannot make weft read other files."""
    path = folder / "manifest.json"
    listed = json.loads(path.read_text())
    listed["files"]["../secret"] = {"bytes": 1, "sha256": ""}
    path.write_text(json.dumps(listed))

    with pytest.raises(DamagedError, match="damaged"):
        open_checkpoint(folder)


def test_digests_of_shards_are_computed_by_their_processes(tmp_path: Path) -> None:
    """Each process handles every second file; the manifest is that of one process."""
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    for base in (alone, shared):
        for name in ("weights/a", "weights/b", "optimizer/c", "run.json"):
            (base / name).parent.mkdir(parents=True, exist_ok=True)
            (base / name).write_text(name)
    for rank in (0, 1):
        manifest.write_part(shared, rank, 2)
    for base in (alone, shared):
        manifest.write(base)

    assert (alone / "manifest.json").read_text() == (shared / "manifest.json").read_text()
    assert [path.name for path in shared.glob(".*")] == []
    manifest.Manifest(shared).verify()


def test_opening_a_checkpoint_reads_its_manifest_once(
    toy_trained: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sharded checkpoint of many processes has a long one."""
    reads: list[str] = []
    read = manifest.json_in

    def counted(folder: Any, name: str, *more: Any) -> Any:
        reads.append(name)
        return read(folder, name, *more)

    monkeypatch.setattr(manifest, "json_in", counted)
    open_checkpoint(toy_trained.averaged or "")

    assert reads == ["manifest.json"]
