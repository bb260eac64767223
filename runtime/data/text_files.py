"""Text files: lines, plain or gzip, strictly UTF-8, inside one folder.

A line ends at a line feed and nowhere else: U+0085, U+2028, form feeds and
tabs are characters of the line.  One carriage return before the line feed
belongs to the ending (files from Windows) and is taken off; so is a byte order
mark at the beginning of a file.  What a line feed ends is a line, and so is a
non-empty rest after the last one.
"""

from __future__ import annotations

import gzip
import zlib
from itertools import zip_longest
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from ...specs.findings import InputError, did_you_mean
from .corpora import fetched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .settings import Files

GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLOCK = 1 << 20
"""Bytes that are counted at a time."""


def resolve(root: str | Path, name: str | Path) -> Path:
    """Return the real path of `name` below `root`.

    Args:
        root: folder that may be read.
        name: path of a file, relative to `root`; it need not exist.

    Raises:
        InputError: the path, links followed, leaves the folder.
    """
    try:
        inside = Path(root).resolve()
        path = (inside / name).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        problem = f"path {str(name)!r} cannot be followed: {error}"
        raise InputError(problem, place=str(root)) from error
    if not path.is_relative_to(inside):
        msg = f"path '{name}' leaves the data root"
        raise InputError(
            msg,
            place=str(inside),
            help="put the file, not a link to it, below the root, or set root to a folder above",
        )
    return path


def read_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a file, without their endings.

    Whether the file is gzip is seen from its first two bytes, not its name.

    Raises:
        InputError: there is no such file, it cannot be read, it is damaged
            gzip, or a line is not UTF-8; the place names file and line.
    """
    for number, raw in enumerate(raw_lines(path), start=1):
        yield decode(raw, path, number)


def raw_lines(path: str | Path) -> Iterator[bytes]:
    """Yield the lines of a file as bytes, with their endings.

    Raises:
        InputError: as for `read_lines`, but that bytes may be anything.
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
            help=f"fetch the file again; 'gzip -t {path.name}' tests it",
        ) from error
    except OSError as error:
        problem = f"cannot read the file: {error.strerror or error}"
        raise InputError(problem, place=str(path)) from error


def count_lines(path: str | Path) -> int:
    """Return the number of lines of a file; blocks are read, so it is quick.

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
        return sum(1 for _ in raw_lines(path))  # slower, and it says at which line
    return lines + (last != b"\n")


def pair_paths(files: Files, root: str | Path) -> list[tuple[Path, Path]]:
    """Return the paths of parallel files, source and target.

    Raises:
        InputError: as for `resolve`, or a named corpus cannot be fetched.
    """
    if files.mtdata:
        return fetched(files)
    return [
        (resolve(root, source), resolve(root, target))
        for source, target in zip(files.source, files.target, strict=True)
    ]


def read_parallel(files: Files, root: str | Path) -> Iterator[tuple[str, str]]:
    """Yield (source line, target line) of all files, pair of files by pair.

    Raises:
        InputError: as for `resolve` and `read_lines`, or a source file has not
            as many lines as its target file; both counts are named.
    """
    for source, target in pair_paths(files, root):
        number = 0
        for number, (left, right) in enumerate(  # noqa: B007 - the count outlives the loop
            zip_longest(read_lines(source), read_lines(target)), start=1
        ):
            if left is None or right is None:
                break
            yield left, right
        else:
            continue
        # One side ended: line `number` is the first without a partner.
        lines = count_lines(target if left is None else source)
        refuse_unequal(
            (source, target), (number - 1, lines) if left is None else (lines, number - 1)
        )


def refuse_unequal(paths: tuple[Path, Path], lines: tuple[int, int]) -> None:
    """Refuse parallel files that have not as many lines as each other.

    Raises:
        InputError: they have not; both counts are named.
    """
    if lines[0] != lines[1]:
        raise InputError(
            f"{lines[0]} source lines for {lines[1]} target lines",
            place=f"{paths[0]} and {paths[1]}",
            help=f"line {min(lines) + 1} has no partner; parallel files align line by line",
        )


def _open(path: Path) -> IO[bytes]:
    """Open a file for reading bytes, through gzip where its magic says so."""
    if not path.is_file():
        _refuse_missing(path)
    file = path.open("rb")
    try:
        magic = file.read(len(GZIP_MAGIC))
        file.seek(0)
    except BaseException:
        file.close()
        raise
    if magic != GZIP_MAGIC:
        return file
    file.close()
    return cast("IO[bytes]", gzip.open(path, "rb"))


def _refuse_missing(path: Path) -> None:
    """Raise the error for a path that is no file, naming the nearest that is one."""
    if path.is_dir():
        msg = "a folder, not a file"
        raise InputError(msg, place=str(path), help="name a file in it")
    if not path.parent.is_dir():
        msg = f"no folder '{path.parent}'"
        raise InputError(msg, place=str(path))
    known = [each.name for each in path.parent.iterdir() if each.is_file()]
    msg = f"no file '{path.name}'"
    raise InputError(msg, place=str(path.parent), help=did_you_mean(path.name, known))


def decode(raw: bytes, path: str | Path, number: int) -> str:
    """Return one line as text, without its ending.

    Args:
        raw: the line, with its ending.
        path: where it is from, for the message.
        number: which line of the file; counts from 1.

    Raises:
        InputError: it is not UTF-8.
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
            help=f"save the file as UTF-8, such as: iconv -f latin1 -t utf-8 {Path(path).name}",
        ) from error
