"""What commands read: the lines of a file, of a pipe as they come, or of a terminal."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from ...data.text_files import raw_lines
from ...system.arriving import Arriving
from . import terminal

T = TypeVar("T")


def text_lines(path: str | None, instead: str) -> Iterator[str]:
    """Yield the lines of a file or of standard input; a line that is not UTF-8 becomes empty.

    Args:
        path: a file, plain text or compressed; None and `-` are standard input.
        instead: what happens to a line that is not UTF-8, for the warning.

    Raises:
        InputError: the file cannot be read.
    """
    raw = _standard_input() if path in (None, "-") else raw_lines(str(path))
    for number, line in enumerate(raw, 1):
        try:
            yield line.rstrip(b"\n").decode("utf-8")
        except UnicodeDecodeError:
            terminal.warn(number, f"not UTF-8, so {instead}")
            yield ""


def as_it_arrives(items: Iterable[T], path: str | None, ahead: int) -> Iterator[T]:
    """Return the items that a command reads from a file or from standard input.

    Items of a pipe or a terminal are `Arriving`.  Those of a file on a disk can always be read, and
    how they are divided into batches does not depend on the time that this takes.  On a terminal, a
    prompt on stderr shows that the command waits for a line.

    Args:
        items: the items, which are read from the file as they are used.
        path: the file; None and `-` are standard input.
        ahead: number of items to read ahead.
    """
    if not _waits(path):
        return iter(items)
    if not prompts(path):
        return Arriving(items, ahead)
    return Arriving(items, ahead, waiting=_prompt, ended=_end_line)


def prompts(path: str | None) -> bool:
    """Return whether a command shows a prompt: its input and stderr are a terminal.

    Args:
        path: as in `as_it_arrives`.
    """
    typed = path in (None, "-") and _waits(path) and sys.stdin.isatty()
    return typed and sys.stderr.isatty()


def _waits(path: str | None) -> bool:
    """Return whether reading a file or standard input may have to wait for another program."""
    try:
        found = os.fstat(sys.stdin.fileno()) if path in (None, "-") else Path(str(path)).stat()
    except (AttributeError, OSError, ValueError):  # not a file of the system, or missing
        return False
    return not stat.S_ISREG(found.st_mode)


def _prompt() -> None:
    """Show that a line may be typed."""
    print("> ", end="", file=sys.stderr, flush=True)


def _end_line() -> None:
    """End the line of the last prompt."""
    print(file=sys.stderr)


def _standard_input() -> Iterable[bytes]:
    """Return the lines of standard input.

    They have a buffer of their own.  A thread that waits for a line holds the lock of its buffer,
    and Python cannot exit while the one of `sys.stdin` is locked.
    """
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except (AttributeError, OSError):  # replaced by an object that is not a file of the system
        return sys.stdin.buffer
