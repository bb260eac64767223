"""Folders that are complete or absent: filled beside their place, flushed, and then renamed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ...specs.findings import InputError


@contextmanager
def new_folder(folder: Path, ending: str = "partial") -> Iterator[Path]:
    """Yield an empty folder, which replaces `folder` when the block ends.

    If the block raises, it is removed, and an old folder stays.

    Args:
        folder: its final path.
        ending: as of `hidden_folder`.

    Raises:
        OSError: it cannot be written.
    """
    partial = hidden_folder(folder, ending)
    try:
        yield partial
        replace_folder(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def refuse_undecodable(path: Path) -> None:
    """Refuse a path that is not UTF-8: the library of safetensors files cannot open any file in it.

    Raises:
        InputError: it is not UTF-8.
    """
    try:
        str(path.resolve()).encode()
    except UnicodeEncodeError as error:
        raise InputError(
            "the path is not UTF-8, so no weights could be written or read there",
            location=str(path.resolve()),
            help="rename the folder, or give another one",
        ) from error


def hidden_folder(folder: Path, ending: str = "partial") -> Path:
    """Make an empty folder `.NAME.ENDING` beside `folder`, also if a killed process has left one.

    Args:
        folder: the path that it shall replace.
        ending: another one for each process, if several may write the same folder at a time.

    Raises:
        OSError: it cannot be made.
    """
    partial = folder.with_name(f".{folder.name}.{ending}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    return partial


def replace_folder(new: Path, old: Path) -> None:
    """Flush `new` to the disk and rename it to `old`; at any moment one of the two is complete.

    Raises:
        OSError: it cannot be renamed; then the old folder has its place again.
    """
    _flush(new)
    aside = _aside(old)
    shutil.rmtree(aside, ignore_errors=True)
    if old.exists():
        old.rename(aside)
    try:
        new.rename(old)
    except OSError:
        if aside.is_dir():
            aside.rename(old)
        raise
    _flush_entries([old.parent])
    shutil.rmtree(aside, ignore_errors=True)


def recover(folder: Path) -> None:
    """Restore a folder if the process was killed while it was being replaced."""
    aside = _aside(folder)
    if aside.is_dir() and not folder.exists():
        aside.rename(folder)


def _aside(folder: Path) -> Path:
    """Return the path of an old folder while a new one takes its name."""
    return folder.with_name(f".{folder.name}.old")


def _flush(folder: Path) -> None:
    """Flush all files of a folder to the disk, and folders where the system can."""
    for path in folder.rglob("*"):
        if path.is_file():
            # Windows flushes only files that are open for writing.
            with path.open("rb+" if os.name == "nt" else "rb") as file:
                os.fsync(file.fileno())
    _flush_entries([*(path for path in folder.rglob("*") if path.is_dir()), folder])


def _flush_entries(folders: Iterable[Path]) -> None:
    """Flush the entries of folders to the disk; Windows cannot open folders."""
    if os.name == "nt":
        return
    for folder in folders:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
