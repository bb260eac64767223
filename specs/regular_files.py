"""Regular files of a folder that a stranger may have written, such as a checkpoint."""

from __future__ import annotations

import stat
from pathlib import Path

from .findings import InputError

_CACHE = ("snapshots", "blobs")
"""Folders of the cache of Hugging Face's library: the files of a snapshot are links to blobs."""


class DamagedError(InputError):
    """A file of a folder is missing, damaged, not of this folder, or no file."""


def path_in(folder: Path, name: str) -> Path:
    """Return the path of a regular file of a folder, without links.

    Args:
        folder: a folder that a stranger may have written; it may itself be a link.
        name: path of the file relative to it.

    Raises:
        DamagedError: the file is missing, is outside of the folder, or is no regular file.
    """
    try:
        root = folder.resolve(strict=True)
        path = (root / name).resolve(strict=True)
        regular = stat.S_ISREG(path.stat().st_mode)
    except (OSError, RuntimeError, ValueError) as error:  # a circle of links, a name with a NUL
        raise refused(folder / name, "the file is missing") from error
    if not path.is_relative_to(_reach(root)) and not path.is_relative_to(root):
        problem = "the file is a link that leads out of its folder, and is not read"
        raise refused(folder / name, problem)
    if not regular:
        raise refused(folder / name, "not a regular file but a folder, a pipe or a device")
    return path


def _reach(root: Path) -> Path:
    """Return the folder to which the links of a folder may lead: itself, or the blobs of a cache.

    Resolved paths are compared with it, so that blobs which are a link contain none.
    """
    snapshots, blobs = _CACHE
    return root.parent.parent / blobs if root.parent.name == snapshots else root


def refused(path: Path, problem: str) -> DamagedError:
    """Return the error of a file of such a folder."""
    return DamagedError(
        problem,
        location=str(path),
        help="copy the complete folder again; of a run, use another checkpoint",
    )
