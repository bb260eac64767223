"""Locks: one process at a time uses a folder.

The system releases a lock when its process ends, however it ends, so a lock is never stale.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from ...specs.findings import InputError

LOCK = ".lock"
"""Lock file in the folder of a run."""
OWNER = ".owner.json"
"""File next to it with the process id, host and start of the process that holds the lock."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the folder of a run for this process; create it if it is missing.

    Raises:
        InputError: another process uses the folder; the message names it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock, owner = FileLock(folder / LOCK), folder / OWNER
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise InputError(
            f"another process uses the folder: {_described(owner)}",
            place=str(folder),
            help="wait until it ends, stop it, or give another folder with --out",
        ) from None
    try:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        mine = {"pid": os.getpid(), "host": socket.gethostname(), "since": now}
        owner.write_text(json.dumps(mine) + "\n")
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()


def _described(owner: Path) -> str:
    """Return the process that holds a lock, as text."""
    try:
        found = json.loads(owner.read_text())
        return f"process {found['pid']} on {found['host']}, since {found['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "it has not yet written its name"


@contextmanager
def waiting_for(path: Path) -> Iterator[bool]:
    """Lock a file, waiting for other processes; create it if it is missing.

    Args:
        path: the lock file; the process that holds the lock may remove it.

    Yields:
        Whether the file still exists: if not, the lock is worth nothing.
    """
    with FileLock(path):
        yield path.is_file()


def is_locked(path: Path) -> bool:
    """Return whether another process holds the lock of a file."""
    try:
        with FileLock(path, timeout=0):
            return False
    except Timeout:
        return True
