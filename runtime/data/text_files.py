"""Lines of text files: plain or gzip, strict UTF-8, inside one folder.

A line ends only at a line feed: U+0085, U+2028, form feeds and tabs are ordinary
characters.  One carriage return before the line feed (files from Windows) is removed,
and so is a byte order mark at the beginning of a file.  Non-empty text after the last
line feed is a line too.
"""

from __future__ import annotations

import gzip
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from ...specs.findings import InputError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator


GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLOCK = 1 << 20
"""Bytes per read when counting lines."""


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
        raise InputError(problem, place=str(root)) from error
    if not path.is_relative_to(inside):
        msg = f"path '{name}' is outside the data root"
        raise InputError(
            msg,
            place=str(inside),
            help="put the file itself, not a link to it, below the root, or set 'root' to a"
            " folder above it",
        )
    return path


def read_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a file, without line endings.

    Gzip files are detected by their first two bytes, not by name.

    Raises:
        InputError: the file is missing, cannot be read or is damaged gzip, or a
            line is not UTF-8; the place names file and line.
    """
    for number, raw in enumerate(raw_lines(path), start=1):
        yield decode(raw, path, number)


def raw_lines(path: str | Path) -> Iterator[bytes]:
    """Yield the lines of a file as bytes, with line endings.

    Raises:
        InputError: as for `read_lines`, except that any bytes are accepted.
    """
    path = Path(path)
    number = 0
    try:
        with _open(path) as file:
            for number, raw in enumerate(file, start=1):  # noqa: B007 - outlives the loop
                yield raw
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        msg = f"gzip file is damaged or cut off: {error}"
        raise InputError(
            msg,
            place=f"{path}:{number + 1}",
            help=f"download or copy the file again; 'gzip -t {path.name}' tests it",
        ) from error
    except OSError as error:
        problem = f"cannot read the file: {error.strerror or error}"
        raise InputError(problem, place=str(path)) from error


def count_lines(path: str | Path) -> int:
    """Return the number of lines of a file, reading it in blocks.

    Raises:
        InputError: as for `raw_lines`.
    """
    path = Path(path)
    lines, last = 0, b"\n"
    try:
        with _open(path) as file:
            while block := file.read(BLOCK):
                lines += block.count(b"\n")
                last = block[-1:]
    except (EOFError, OSError, zlib.error):
        return sum(1 for _ in raw_lines(path))  # slower, but its error names the line
    return lines + (last != b"\n")


@contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    """Open a file or a pipe for reading bytes, decompressing it if it starts as gzip does."""
    refuse_missing_file(path)
    with path.open("rb") as file:
        if file.peek(len(GZIP_MAGIC))[: len(GZIP_MAGIC)] == GZIP_MAGIC:
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield cast("IO[bytes]", unpacked)
        else:
            yield file


def refuse_missing_file(path: Path) -> None:
    """Check that a path is a file or a pipe.

    Raises:
        InputError: it is not; the message suggests similar names.
    """
    if path.exists() and not path.is_dir():
        return
    if path.is_dir():
        msg = "path is a folder, not a file"
        raise InputError(msg, place=str(path), help="give a file in it")
    if not path.parent.is_dir():
        msg = f"no folder '{path.parent}'"
        raise InputError(msg, place=str(path))
    known = [each.name for each in path.parent.iterdir() if each.is_file()]
    msg = f"no file '{path.name}'"
    raise InputError(msg, place=str(path), help=did_you_mean(path.name, known))


def decode(raw: bytes, path: str | Path, number: int) -> str:
    """Return one line as text, without its line ending.

    Args:
        raw: the line, with its line ending.
        path: file of the line, for the message.
        number: line number in the file; counts from 1.

    Raises:
        InputError: the line is not UTF-8.
    """
    raw = raw.removesuffix(b"\n").removesuffix(b"\r") if raw.endswith(b"\n") else raw
    if number == 1:
        raw = raw.removeprefix(BYTE_ORDER_MARK)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        msg = f"byte 0x{raw[error.start]:02x} at offset {error.start} of the line is not UTF-8"
        raise InputError(
            msg,
            place=f"{path}:{number}",
            help=f"convert the file to UTF-8, such as: iconv -f latin1 -t utf-8 {Path(path).name}",
        ) from error
