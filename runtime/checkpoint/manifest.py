"""The manifest of a checkpoint: the size and SHA-256 digest of each of its files.

It is written last, so a folder with a manifest is complete, and compared when a checkpoint is
opened, so damaged or exchanged files are refused instead of used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ...specs.findings import InputError
from ...specs.regular_files import DamagedError, path_in
from ..system.strangers import has_file, json_in, open_in, read_in

FORMAT = 1
"""Version of the layout of a checkpoint's folder."""
MANIFEST = "manifest.json"
OBJECTIVE = "objective.json"
"""File of the objective that trained a model."""
MEMORY = "memory.safetensors"
"""File of the state between segments, in checkpoints that can be resumed."""
LARGEST_MANIFEST = 8 << 20
"""Maximum bytes of a manifest; a shard needs 150."""
RESERVE = 16 << 20
"""Bytes that must remain free on the disk after a checkpoint is written."""
_WEIGHTS = ("weights.safetensors", "weights/")
"""Beginnings of the paths of files with weights."""
_PARTS = ".digests"
"""Beginning of the names of the files in which processes leave the digests of their shards."""


def digest(folder: Path, name: str) -> dict[str, Any]:
    """Return the size in bytes and the SHA-256 digest of a file of a folder.

    Raises:
        DamagedError: the file is missing, or not a file of this folder.
    """
    with open_in(folder, name) as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
        return {"bytes": file.tell(), "sha256": checksum}


class Manifest:
    """The files of a checkpoint; its manifest is read once, when it is first needed."""

    def __init__(self, folder: Path) -> None:
        """Take the folder of the checkpoint."""
        self.folder = folder

    @cached_property
    def entries(self) -> Mapping[str, Mapping[str, Any]]:
        """Size and digest of each file.

        Raises:
            DamagedError: the manifest is missing or damaged.
        """
        return _entries(self.folder)

    @cached_property
    def names(self) -> list[str]:
        """Files that belong to the checkpoint, as paths relative to its folder.

        These are the files of the manifest; what else lies in the folder is not read.  Without a
        manifest, as of a checkpoint that is opened without verification, they are all files.

        Raises:
            DamagedError: the manifest is damaged.
        """
        return sorted(self.entries) if has_file(self.folder, MANIFEST) else _files(self.folder)

    @property
    def weights(self) -> list[str]:
        """Files with weights, as paths relative to the folder."""
        return [name for name in self.names if name.startswith(_WEIGHTS)]

    def verify(self, *, without: Iterable[str] = (), only: Collection[str] = ()) -> None:
        """Compare the files with the manifest.

        Args:
            without: files and subfolders that are not compared.
            only: if given, the files and subfolders that are compared.

        Raises:
            DamagedError: the manifest is missing or damaged, or a file is missing or has changed.
        """
        skipped = tuple(without)
        for name, expected in self.entries.items():
            first = name.partition("/")[0]
            if first in skipped or (only and first not in only):
                continue
            size = path_in(self.folder, name).stat().st_size
            if size != expected.get("bytes") or digest(self.folder, name) != expected:
                problem = "the file has changed since the checkpoint was written"
                raise _damaged(self.folder / name, problem)


def _files(folder: Path) -> list[str]:
    """Return the files of a checkpoint, as paths relative to its folder."""
    names = (str(p.relative_to(folder).as_posix()) for p in folder.rglob("*") if p.is_file())
    return sorted(name for name in names if name != MANIFEST and not name.startswith(_PARTS))


def write_part(folder: Path, rank: int, size: int) -> None:
    """Leave the digests of every `size`th tensor file of a sharded checkpoint for the main process.

    Args:
        folder: the temporary folder of the checkpoint, on a file system that all processes share.
        rank: number of this process.
        size: number of processes.
    """
    mine = [name for name in _files(folder) if "/" in name][rank::size]
    digests = {name: digest(folder, name) for name in mine}
    (folder / f"{_PARTS}.{rank}").write_text(json.dumps(digests))


def write(folder: Path) -> None:
    """Write the manifest of a complete folder; use digests that other processes have left."""
    digests: dict[str, Any] = {}
    for part in sorted(folder.glob(f"{_PARTS}.*")):
        digests |= json.loads(read_in(folder, part.name))
        part.unlink()
    files = {name: digests.get(name) or digest(folder, name) for name in _files(folder)}
    text = json.dumps({"files": files}, indent=1) + "\n"
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def weights_digest(folder: Path) -> str:
    """Return a SHA-256 digest of the weights of a checkpoint, from its manifest if it has one.

    Raises:
        DamagedError: the manifest is damaged.
    """
    stored = Manifest(folder)
    digests = stored.entries if has_file(folder, MANIFEST) else {}
    files = {name: digests.get(name) or digest(folder, name) for name in stored.weights}
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def _entries(folder: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the entries of the manifest by file."""
    path = folder / MANIFEST
    path_in(folder, MANIFEST)
    try:
        files: Any = json_in(folder, MANIFEST, LARGEST_MANIFEST)[0]["files"]
        safe_names = all(".." not in Path(name).parts and name[:1] != "/" for name in files)
        valid = safe_names and all(isinstance(entry, dict) for entry in files.values())
    except (InputError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, "the file is damaged") from error
    if not valid:
        raise _damaged(path, "the file is damaged")
    return dict(files)


def _damaged(path: Path, problem: str) -> DamagedError:
    return DamagedError(
        problem, location=str(path), help="restore the checkpoint, or use another one of the run"
    )
