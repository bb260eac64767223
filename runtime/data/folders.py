"""Folders that appear whole or not at all: written beside, then renamed."""

from __future__ import annotations

import secrets
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...specs.findings import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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
    fresh = _beside(folder)
    try:
        yield fresh
        if folder.exists():
            stale = _beside(folder)
            folder.replace(stale)
            try:
                fresh.rename(folder)
            except OSError:
                stale.rename(folder)
                raise
            shutil.rmtree(stale)
        else:
            fresh.rename(folder)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def _beside(folder: Path) -> Path:
    """Make an empty hidden folder next to `folder`."""
    fresh = folder.parent / f".{folder.name}.{secrets.token_hex(6)}"
    fresh.mkdir()
    return fresh
