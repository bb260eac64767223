"""Lines of text files: UTF-8, plain or compressed, inside one folder.

A line ends only at a line feed: U+0085, U+2028, form feeds and tabs are ordinary
characters.  One carriage return before the line feed (files from Windows) is removed,
and so is a byte order mark at the beginning of a file.  Non-empty text after the last
line feed is a line too.  `streams.py` says which compressions and encodings are read.
"""

from __future__ import annotations

import io
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ...specs.findings import InputError, did_you_mean
from .streams import DamagedStreamError, text_of_file, unmarked_encoding

if TYPE_CHECKING:
    from collections.abc import Iterator


BLOCK = 1 << 20
"""Bytes per read when counting lines."""
LARGEST_LINE = 1 << 24
"""Maximum bytes of a line: a compressed file may unpack to one that fills the memory."""
STDIN = "standard input"
"""Name of standard input in messages."""


def resolve(root: str | Path, name: str | Path) -> Path:
    """Return the real path of `name` below `root`.

    Args:
        root: folder that must contain the file.
        name: path of a file, relative to `root`; it need not exist.

    Raises:
        InputError: the path, after resolving links, is outside the folder.
    """
    try:
        inside = Path(root).resolve()
        path = (inside / name).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        problem = f"path {str(name)!r} cannot be resolved: {error}"
        raise InputError(problem, location=str(root)) from error
    if not path.is_relative_to(inside):
        msg = f"path '{name}' is outside the data root"
        raise InputError(
            msg,
            location=str(inside),
            help="put the file itself, not a link to it, below the root, or set 'root' to a"
            " folder above it",
        )
    return path


def read_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a file, without line endings.

    Raises:
        InputError: the file is missing, cannot be read or is damaged, or a line is not UTF-8 or too
            long; the place names file and line.
    """
    for number, raw in enumerate(raw_lines(path), start=1):
        yield decode(raw, path, number)


def raw_lines(path: str | Path | None) -> Iterator[bytes]:
    """Yield the lines of a file as bytes, with line endings.

    Args:
        path: the file; None is standard input.

    Raises:
        InputError: as for `read_lines`, except that any bytes are accepted.
    """
    name, number = str(path or STDIN), 0
    try:
        with _open(path) as lines:
            bounded = iter(lambda: lines.readline(LARGEST_LINE + 1), b"")
            for number, raw in enumerate(bounded, start=1):
                if len(raw) > LARGEST_LINE:
                    raise InputError(
                        f"the line is longer than {LARGEST_LINE:,} bytes",
                        location=f"{name}:{number}",
                        help="write one text on each line",
                    )
                if number == 1:
                    _refuse_old_line_ends(raw, name)
                yield raw
    except DamagedStreamError as error:
        raise InputError(error.problem, location=f"{name}:{number + 1}", help=error.help) from error
    except OSError as error:
        problem = f"cannot read the file: {error.strerror or error}"
        raise InputError(problem, location=name) from error


def count_lines(path: str | Path) -> int:
    """Return the number of lines of a file, reading it in blocks.

    Raises:
        InputError: as for `read_lines`; whether lines are UTF-8 is not always checked.
    """
    lines, last, is_text = 0, b"\n", True
    try:
        with _open(path) as file:
            while is_text and (block := file.read(BLOCK)):
                lines += block.count(b"\n")
                last = block[-1:]
                is_text = b"\0" not in block
    except (DamagedStreamError, OSError):
        is_text = False
    if is_text and lines:
        return lines + (last != b"\n")
    return sum(1 for _ in read_lines(path))  # slower, but its error names the line


def head(path: str | Path, size: int) -> tuple[bytes, bool]:
    """Return the first lines of a file that have at most `size` bytes, and whether it has no more.

    Raises:
        InputError: the file cannot be read, or its first line is longer.
    """
    try:
        with _open(path) as file:
            content = file.read(size + 1)
    except DamagedStreamError as error:
        raise InputError(error.problem, location=str(path), help=error.help) from error
    except OSError as error:
        problem = f"cannot read the file: {error.strerror or error}"
        raise InputError(problem, location=str(path)) from error
    if len(content) <= size:
        return content, True
    lines = content[: content.rfind(b"\n") + 1]
    if not lines:
        problem = f"the first line is longer than {size:,} bytes"
        raise InputError(problem, location=str(path), help="write one text on each line")
    return lines, False


@contextmanager
def _open(path: str | Path | None) -> Iterator[io.BufferedReader]:
    """Open a file, a pipe or standard input for reading its content in UTF-8.

    Standard input has a buffer of its own.  A thread that waits for a line holds the lock of its
    buffer, and Python cannot exit while the one of `sys.stdin` is locked.
    """
    if path is not None:
        refuse_missing_file(Path(path))
        with Path(path).open("rb") as file, text_of_file(file, path) as text:
            yield text
        return
    try:
        stdin = open(sys.stdin.fileno(), "rb", closefd=False)  # noqa: SIM115 - closed below
    except (AttributeError, OSError):  # replaced by an object that is not a file of the system
        stdin = io.BufferedReader(cast("io.RawIOBase", sys.stdin.buffer))
    with text_of_file(stdin, STDIN) as text:
        yield text


def _refuse_old_line_ends(line: bytes, path: str) -> None:
    """Check that the first line is not a whole file whose lines end with carriage returns.

    Raises:
        InputError: it is one.
    """
    if b"\r" in line[:-1] and not line.endswith(b"\n"):
        count = line.rstrip(b"\r").count(b"\r") + 1
        raise InputError(
            f"the {count} lines of the file end with carriage returns alone",
            location=path,
            help=f"end them with line feeds, such as: tr '\\r' '\\n'{_input(path, ' <')}",
        )


def _input(path: str, mark: str = "") -> str:
    """Return how a command line names the input of a program; "" for standard input."""
    return "" if path == STDIN else f"{mark} {path.rpartition('/')[2]}"


def refuse_missing_file(path: Path) -> None:
    """Check that a path is a file or a pipe.

    Raises:
        InputError: it is not; the message suggests similar names.
    """
    if path.exists() and not path.is_dir():
        return
    if path.is_dir():
        msg = "path is a folder, not a file"
        raise InputError(msg, location=str(path), help="give a file in it")
    if not path.parent.is_dir():
        msg = f"no folder '{path.parent}'"
        raise InputError(msg, location=str(path))
    names = [child.name for child in path.parent.iterdir() if child.is_file()]
    msg = f"no file '{path.name}'"
    raise InputError(msg, location=str(path), help=did_you_mean(path.name, names))


def decode(raw: bytes, path: str | Path, number: int, *, keep_end: bool = False) -> str:
    """Return one line as text.

    Args:
        raw: the line, with its line ending.
        path: file of the line, for the message.
        number: line number in the file; counts from 1.
        keep_end: whether the line ending stays.

    Raises:
        InputError: the line is not UTF-8, or has a byte 0.
    """
    text = raw
    if not keep_end and text.endswith(b"\n"):
        text = text[:-1].removesuffix(b"\r")
    if b"\0" not in text:
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            at = error.start
    else:
        at = text.index(0)
    kind = "UTF-8" if text[at] else "text"
    raise InputError(
        f"byte 0x{text[at]:02x} at offset {at} of the line is not {kind}",
        location=f"{path}:{number}",
        help=_way_out(raw, str(path), number),
    )


def _way_out(raw: bytes, path: str, number: int) -> str:
    """Return what to do about a file of which one line is not text in UTF-8."""
    encoding = unmarked_encoding(raw, number)
    if encoding is not None:
        return (
            f"the file seems to be {encoding} without a byte order mark; convert it to UTF-8:"
            f" iconv -f {encoding.lower()} -t utf-8{_input(path)}"
        )
    if 0 in raw:
        removed = f"tr -d '\\0'{_input(path, ' <')}"
        return f"the file is damaged or not a text; this removes the bytes: {removed}"
    return f"convert the file to UTF-8, such as: iconv -f latin1 -t utf-8{_input(path)}"
