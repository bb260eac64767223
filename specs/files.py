"""Files: what a command writes, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from .findings import InputError


def write_beside(out: Path, content: bytes, what: str) -> None:
    """Write a file beside and rename it, so that one that has its name is complete.

    Args:
        out: where; its folder is made.
        content: what the file holds.
        what: the word for it in the finding.

    Raises:
        InputError: it cannot be written.
    """
    beside = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            beside.write_bytes(content)
            beside.replace(out)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        problem = f"cannot write the {what}: {error.strerror}"
        raise InputError(problem, place=str(out), help="choose another place") from error
