"""Atomic folders: filled next to their final place, then renamed.

`building` starts over each time; `resuming` continues the work of a killed process.
"""

from __future__ import annotations

import secrets
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from ...specs.findings import InputError
from ..system.folders import new_folder, replace_folder
from ..system.lock import waiting_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LOCK = "lock"
"""Lock file in a working folder, held by the process that uses the folder."""


@contextmanager
def building(folder: Path, marker: str) -> Iterator[Path]:
    """Yield a new folder to fill; it replaces `folder` when the block ends.

    If the block raises, the new folder is removed and the old one stays.  A
    killed process may leave a hidden folder `.NAME.*` next to `folder`.

    Args:
        folder: final path; an existing folder is replaced if it is empty or
            contains a file named `marker`.
        marker: name of the file that identifies a folder of this kind.

    Raises:
        InputError: the path is taken by something else.
    """
    folder = _free(folder, marker)
    with new_folder(folder, secrets.token_hex(6)) as fresh:
        yield fresh


@contextmanager
def resuming(
    folder: Path, marker: str, key: str, log: Callable[[str], None]
) -> Iterator[tuple[Path, Path]]:
    """Yield a hidden working folder that is kept after a kill, for one process at a time.

    The working folder `.NAME.work` is next to `folder`.  The next call with the same key
    finds it again; it is removed when the work is done or the input is wrong.

    Args:
        folder: final path, as for `building`.
        marker: name of the file that identifies a folder of this kind.
        key: identifies the work; a working folder with another key is emptied.
        log: called with a message when the call waits for another process or resumes work.

    Yields:
        The working folder, and a folder inside it that replaces `folder` when the block
        ends, provided that it contains the marker by then.

    Raises:
        InputError: the path is taken by something else.
    """
    folder = _free(folder, marker)
    work = folder.parent / f".{folder.name}.work"
    waits = f"waiting for another process that prepares {work}"
    with waiting_lock(work / LOCK, lambda: log(waits)):
        note = work / "key"
        if note.is_file() and note.read_text() == key:
            log(f"resuming the preparation in {work}")
        else:
            for path in work.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                elif path.name != LOCK:
                    path.unlink()
            note.write_text(key)
        fresh = work / "out"
        fresh.mkdir(exist_ok=True)
        for path in fresh.glob(".*"):  # left unfinished by a killed process
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        try:
            yield work, fresh
            if (fresh / marker).is_file():
                replace_folder(fresh, folder)
        except InputError as error:
            if not getattr(error, "passing", False):
                shutil.rmtree(work)
            raise
        shutil.rmtree(work)


def remove_leftover(folder: Path) -> None:
    """Remove the working folder of `resuming` if its process was killed after the work was done.

    Args:
        folder: the final path, which is complete.
    """
    work = folder.absolute().parent / f".{folder.name}.work"
    if not work.is_dir():
        return
    lock = FileLock(work / LOCK)
    try:
        lock.acquire(timeout=0)
    except (Timeout, OSError):  # another process prepares, or has just removed the folder
        return
    shutil.rmtree(work, ignore_errors=True)
    lock.release()


def _free(folder: Path, marker: str) -> Path:
    """Check that a path may be replaced, create its parent, and return the absolute path.

    Raises:
        InputError: the path is taken by something else.
    """
    folder = folder.absolute()
    if folder.exists() and not (folder / marker).is_file():
        if not folder.is_dir() or any(folder.iterdir()):
            msg = f"'{folder.name}' exists and does not contain {marker}"
            raise InputError(
                msg,
                location=str(folder),
                help="choose another folder, or move this one away",
            )
        folder.rmdir()
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder
