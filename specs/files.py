"""Atomic file writes, by which a file is complete or absent, and the digest of a file."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path
from threading import get_ident

from .findings import InputError

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk, and of a quota."""


def sha256_of(path: Path) -> str:
    """Return the SHA-256 digest of a file in hexadecimal digits.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def way_out(error: OSError, otherwise: str) -> str:
    """Return what helps after a file could not be written.

    Args:
        error: the error of the system.
        otherwise: what helps if the disk is not full.
    """
    return "free disk space, and run the same command again" if error.errno in FULL else otherwise


def replaceable(out: Path) -> Path | None:
    """Return the file that a finished file is renamed to; None if `out` must be opened instead.

    Links are followed.  A device or a pipe, such as `/dev/fd/63` of a shell, cannot be replaced.

    Args:
        out: destination path, which may not exist yet.
    """
    return None if out.exists() and not out.is_file() else out.resolve()


def write_beside(out: Path, content: bytes, what: str) -> None:
    """Write a temporary file and rename it, so that a file at `out` is always complete.

    A link is followed, and a device or a pipe is written to, not replaced.

    Args:
        out: destination path; its folder is created.
        content: bytes to write.
        what: name of this kind of file in the error message.

    Raises:
        InputError: the file cannot be written.
    """
    try:
        final = replaceable(out)
        if final is None:
            out.write_bytes(content)
            return
        temporary = final.with_name(f".{final.name}.{os.getpid()}-{get_ident()}.tmp")
        final.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(content)
            temporary.replace(final)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        problem = f"cannot write the {what}: {error.strerror}"
        help_ = way_out(error, "choose another path")
        raise InputError(problem, location=str(out), help=help_) from error
