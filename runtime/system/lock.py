"""Locks: one process at a time uses a folder.

The system releases a lock when its process ends, however it ends, so a lock is never stale.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from ...specs.files import way_out
from ...specs.findings import InputError
from .folders import refuse_undecodable
from .strangers import object_in

LOCK = ".lock"
"""Lock file in the folder of a run."""
OWNER = ".owner.json"
"""File next to it with the process id, host and start of the process that holds the lock."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the folder of a run for this process; create it if it is missing.

    Raises:
        InputError: another process uses the folder, which the message names, no file can be
            written to it, a file in it is a link, or its path is not UTF-8.
    """
    refuse_undecodable(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.is_symlink() and not path.is_dir():
            raise InputError(
                "the file is a link, through which a file elsewhere would be overwritten",
                location=str(path),
                help="remove it, or give another folder with --out",
            )
    lock, owner = FileLock(folder / LOCK), folder / OWNER
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise InputError(
            f"another process uses the folder: {_described(owner)}",
            location=str(folder),
            help="wait until it ends, stop it, or give another folder with --out",
        ) from None
    try:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        mine = {"pid": os.getpid(), "host": socket.gethostname(), "since": now}
        try:
            owner.write_text(json.dumps(mine) + "\n")
        except OSError as error:
            raise InputError(
                f"cannot lock the folder: {error.strerror}",
                location=str(folder),
                help=way_out(error, "give another folder with --out"),
            ) from error
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock of a file, which may be missing."""
    if not path.is_file():
        return False
    try:
        with FileLock(path, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # a folder that can only be read
        return False


def _described(owner: Path) -> str:
    """Return the process that holds a lock, as text."""
    try:
        holder = object_in(owner.parent, owner.name)
        return f"process {holder['pid']} on {holder['host']}, since {holder['since']}"
    except (InputError, KeyError):
        return "it has not yet written its name"


@contextmanager
def waiting_lock(path: Path, waits: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of a file, once the process that holds it releases it.

    Args:
        path: the lock file; it and its folder are created if they are missing.
        waits: called if another process holds the lock.
    """
    lock = None
    while lock is None:
        # The previous holder may have removed the folder, and the lock file with it.
        path.parent.mkdir(exist_ok=True)
        lock = _acquired(path, waits)
    try:
        yield
    finally:
        lock.release()


def _acquired(path: Path, waits: Callable[[], None]) -> FileLock | None:
    """Lock a file, waiting for the process that holds the lock.

    Args:
        path: the lock file; created if it is missing.
        waits: called once if another process holds the lock.

    Returns:
        The lock; None if that process has removed the file or its folder in the meantime.
    """
    lock = FileLock(path)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            waits()
            lock.acquire()
    except FileNotFoundError:
        return None
    if path.is_file():
        return lock
    lock.release()
    return None
