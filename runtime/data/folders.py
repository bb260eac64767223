"""Folders that appear whole or not at all: written beside, then renamed.

`building` begins anew each time; `resuming` goes on where a killed process was.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from ...specs.findings import InputError

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LOCK = "lock"
"""File in a folder of work that its process holds."""


@contextmanager
def building(folder: Path, marker: str) -> Iterator[Path]:
    """Give a new folder to fill; at the end it takes the place of `folder`.

    When the body raises, the new folder is removed and the old one stays.  A
    process that is killed may leave a hidden folder `.NAME.*` beside.

    Args:
        folder: the final place; what is there is replaced when it is empty or
            holds a file named `marker`.
        marker: name of the file by which a folder of this kind is known.

    Raises:
        InputError: something else is at the place.
    """
    folder = _free(folder, marker)
    fresh = _beside(folder)
    try:
        yield fresh
        _put(fresh, folder)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


@contextmanager
def resuming(
    folder: Path, marker: str, key: str, log: Callable[[str], None]
) -> Iterator[tuple[Path, Path]]:
    """Give a hidden folder to work in, kept by a kill, for one process at a time.

    Beside `folder` stands `.NAME.work` while it is made.  It is there again for the next
    call with the same key, and is removed when the work is done or the input is wrong.

    Args:
        folder: the final place, as for `building`.
        marker: name of the file by which a folder of this kind is known.
        key: what is made; work on anything else is thrown away.
        log: hears that another process is waited for, or that work goes on.

    Yields:
        The folder to work in, and a folder in it that takes the place of `folder` at the
        end if the marker is in it by then.

    Raises:
        InputError: something else is at the place.
    """
    folder = _free(folder, marker)
    work = folder.parent / f".{folder.name}.work"
    with _locked(work, log):
        note = work / "key"
        if note.is_file() and note.read_text() == key:
            log(f"going on with the preparation begun in {work}")
        else:
            for path in work.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                elif path.name != LOCK:
                    path.unlink()
            note.write_text(key)
        fresh = work / "out"
        fresh.mkdir(exist_ok=True)
        for path in fresh.glob(".*"):  # what a killed process was just writing
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        try:
            yield work, fresh
            if (fresh / marker).is_file():
                _put(fresh, folder)
        except InputError as error:
            if not getattr(error, "passing", False):
                shutil.rmtree(work)
            raise
        shutil.rmtree(work)


@contextmanager
def _locked(work: Path, log: Callable[[str], None]) -> Iterator[None]:
    """Hold a folder for this process, and make it where it is not there."""
    told = False
    while True:
        work.mkdir(exist_ok=True)
        with suppress(FileNotFoundError), (work / LOCK).open("w") as file:
            if not _lock(file, wait=False):
                if not told:
                    log(f"waiting for another process that prepares {work}")
                told = True
                _lock(file, wait=True)
            # The one that had it may have removed it: then the lock holds nothing.
            if (work / LOCK).stat().st_ino == os.fstat(file.fileno()).st_ino:
                yield
                return


def _lock(file: IO[str], *, wait: bool) -> bool:
    """Lock a file until it is closed; say whether that could be done."""
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def _free(folder: Path, marker: str) -> Path:
    """Return the absolute path of a folder whose place may be taken, its parent made.

    Raises:
        InputError: something else is at the place.
    """
    folder = folder.absolute()
    if folder.exists() and not (folder / marker).is_file():
        if not folder.is_dir() or any(folder.iterdir()):
            msg = f"'{folder.name}' exists and has no {marker}"
            raise InputError(
                msg,
                place=str(folder),
                help="name another folder, or move this one away",
            )
        folder.rmdir()
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder


def _put(fresh: Path, folder: Path) -> None:
    """Put a folder in the place of another, which is removed."""
    if not folder.exists():
        fresh.rename(folder)
        return
    stale = _beside(folder)
    folder.replace(stale)
    try:
        fresh.rename(folder)
    except OSError:
        stale.rename(folder)
        raise
    shutil.rmtree(stale)


def _beside(folder: Path) -> Path:
    """Make an empty hidden folder next to `folder`."""
    fresh = folder.parent / f".{folder.name}.{secrets.token_hex(6)}"
    fresh.mkdir()
    return fresh
