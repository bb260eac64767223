"""The local copy of prepared data: one for all runs of a machine, of bounded size.

    CACHE/prepared/DIGEST/          a prepared folder, complete
    CACHE/prepared/.DIGEST.work/    one that is being fetched; the next call goes on from it
    CACHE/prepared/.users/          a lock for each folder that a process uses, until it ends

`WEFT_CACHE` says where the cache is, and `WEFT_CACHE_LIMIT` how many GB (10^9 bytes) of prepared
data it may have.  What was used least recently, and is not in use, makes room.
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock

from ....specs.files import way_out
from ....specs.findings import InputError
from ...system.cache import cache_folder
from ...system.lock import is_locked, waiting_lock
from ..folders import resuming
from .manifest import (
    MANIFEST,
    Piece,
    PreparedManifest,
    object_name,
    parsed,
    read_manifest,
    read_object,
)
from .stores import Store
from .upload import MIB, Tell, in_threads

LIMIT = "WEFT_CACHE_LIMIT"
"""Environment variable with the GB of prepared data in the cache."""
DEFAULT = 100.0
GB = 10**9
RESERVE = GB // 10
"""Bytes of the disk that stay free."""
_USERS = ".users"
_IN_USE: dict[Path, FileLock] = {}
"""The lock of each folder that this process uses."""


class Fetched(NamedTuple):
    """A prepared folder in the cache, where it stays until this process ends."""

    folder: Path
    manifest: PreparedManifest


def fetched(
    store: Store,
    digest: str,
    *,
    accept: Callable[[PreparedManifest], None],
    check: Callable[[Path, PreparedManifest], None],
    tell: Tell,
    log: Callable[[str], None],
    part: str = "",
) -> Fetched:
    """Return the local copy of prepared data, fetching it if it is not there.

    Args:
        store: where it is.
        digest: SHA-256 of its manifest.
        accept: raises an error if the manifest is not the right one, before data is fetched.
        check: raises an error if the fetched folder is not what its manifest says.
        tell: called with the progress.
        log: called with single lines of text.
        part: folder of the prepared folder that is fetched alone.

    Raises:
        InputError: the data cannot be reached or is damaged, or the cache has no room for it.
    """
    base = cache_folder() / "prepared"
    try:
        (base / _USERS).mkdir(parents=True, exist_ok=True)
        folder = base / (f"{digest}-{part}" if part else digest)
        _use(folder)
        if not (folder / MANIFEST).is_file():
            waits = "waiting for another process that fetches prepared data"
            with waiting_lock(base / ".fetch.lock", lambda: log(waits)):
                if not (folder / MANIFEST).is_file():  # another process may have fetched it
                    manifest = read_manifest(store, digest)
                    accept(manifest)
                    pieces = manifest.inside(part)
                    size = sum(size for listed in pieces.values() for _, size in listed)
                    _make_room(folder, size)
                    log(f"fetching {_gb(size)} of prepared data from {store.address}")
                    with resuming(folder, MANIFEST, folder.name, log) as (_, fresh):
                        _fetch(store, fresh, pieces, size, tell)
                        check(fresh, manifest)
                        (fresh / MANIFEST).write_bytes(manifest.content())
        os.utime(folder)
        content = (folder / MANIFEST).read_bytes()
    except OSError as error:
        raise InputError(
            f"the cache of prepared data cannot be written: {error.strerror}",
            location=str(error.filename or base),
            help=way_out(error, "set WEFT_CACHE to a folder that can be written"),
        ) from error
    manifest = parsed(content, str(folder), MANIFEST)
    accept(manifest)
    return Fetched(folder, manifest)


def _fetch(
    store: Store, folder: Path, files: Mapping[str, tuple[Piece, ...]], total: int, tell: Tell
) -> None:
    """Fill a folder with the files of a manifest; pieces that are there already stay.

    Raises:
        InputError: an object cannot be read, or is damaged.
        OSError: a file cannot be written.
    """
    parts: list[tuple[Path, int, str, int]] = []
    for name, pieces in files.items():
        path, start = folder / name, 0
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        for digest, size in pieces:
            parts.append((path, start, digest, size))
            start += size
        os.truncate(path, start)

    def stored(part: tuple[Path, int, str, int]) -> int:
        path, start, digest, size = part
        with path.open("r+b") as file:
            file.seek(start)
            if hashlib.sha256(file.read(size)).hexdigest() != digest:
                content = read_object(store, object_name(digest), digest, size)
                file.seek(start)
                file.write(content)
        return size

    done = 0
    for size in in_threads(stored, parts):
        done += size
        tell("fetch", done // MIB, total // MIB)


def _use(folder: Path) -> None:
    """Keep a folder in the cache until this process ends."""
    if folder in _IN_USE:
        return
    with FileLock(folder.parent / ".lock"):
        _is_used(folder)
        name = f"{folder.name}.{secrets.token_hex(4)}"
        lock = FileLock(folder.parent / _USERS / name, thread_local=False)
        lock.acquire()
    _IN_USE[folder] = lock


def _make_room(folder: Path, needed: int) -> None:
    """Remove folders until another one fits; only the process that fetches does this.

    Raises:
        InputError: it does not fit; then nothing was removed.
    """
    limit, base, work = _limit(), folder.parent, f".{folder.name}.work"
    with FileLock(base / ".lock"):
        folders = {
            path: (path.stat().st_mtime, _bytes(path), _is_used(path))
            for path in base.iterdir()
            if path.is_dir() and path.name not in (_USERS, folder.name, work)
        }
        begun = _bytes(base / work)
        taken = sum(size for _, size, _ in folders.values())
        free = shutil.disk_usage(base).free + begun - RESERVE
        removable = sum(size for _, size, used in folders.values() if not used)
        why = help_ = ""
        if needed + taken - removable > limit:
            why = f"the cache may have {_gb(limit)}" + (
                f", of which {_gb(taken - removable)} are in use" if taken > removable else ""
            )
            help_ = f"set {LIMIT} to more GB, or wait until other runs have ended"
        elif needed > free + removable:
            why = f"the disk of the cache has room for {_gb(max(0, free + removable))}"
            help_ = "free disk space, or set WEFT_CACHE to a folder of a larger disk"
        if why:
            raise InputError(
                f"the prepared data has {_gb(needed)}, but {why}", location=str(base), help=help_
            )
        unused = [path for path, (_, _, used) in folders.items() if not used]
        for path in sorted(unused, key=lambda path: folders[path][0]):
            if needed + taken <= limit and needed <= free:
                break
            shutil.rmtree(path)
            taken, free = taken - folders[path][1], free + folders[path][1]


def _is_used(folder: Path) -> bool:
    """Return whether a process uses a folder; locks of processes that have ended are removed."""
    for path in (folder.parent / _USERS).glob(f"{folder.name}.*"):
        if is_locked(path):
            return True
        path.unlink(missing_ok=True)
    return False


def _limit() -> float:
    """Return the bytes of prepared data that the cache may have.

    Raises:
        InputError: the environment has no such number.
    """
    text = os.environ.get(LIMIT) or str(DEFAULT)
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if not limit >= 0:
        raise InputError(
            f"{LIMIT} is {text!r}, not a number of GB", help=f"set it to a number: {LIMIT}=200"
        )
    return limit * GB


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _gb(size: float) -> str:
    """Return a number of bytes for people."""
    return f"{size / GB:,.1f} GB" if size >= GB else f"{size / 10**6:,.1f} MB"
