"""Arrays in `.npy` and `.npz` files, whose stated sizes are checked before memory is reserved.

The header of an array is a Python literal.  One that states more numbers than the file has, nests
without end, or names objects is refused; so is an archive that unpacks to far more than its size.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Collection
from contextlib import closing
from io import BytesIO
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

LARGEST_HEADER = 1 << 10
"""Maximum bytes of the header of an array; one of eight axes needs 130."""
_BRACKETS = 2
"""Opening brackets of a header: those of a dictionary, and those of a shape."""
LARGEST_UNPACKED = 256 << 20
"""Bytes to which an archive may unpack, however small it is."""
LARGEST_RATIO = 32
"""Larger archives may unpack to this multiple of their bytes."""
MOST_ARRAYS = 4096
"""Maximum number of arrays in an archive."""
DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
    EOFError,
    RuntimeError,
    MemoryError,
    OSError,
    SyntaxError,
    TypeError,
    UnicodeError,
    TokenError,
)
"""What reading a damaged or encrypted file raises, besides `ValueError`."""


def array_of(file: IO[bytes], size: int, shapes: Collection[tuple[int, ...]] = ()) -> NDArray[Any]:
    """Return the array of an `.npy` file.

    Args:
        file: the file, at its beginning.
        size: its bytes.
        shapes: the shapes that are read; all if there are none.

    Raises:
        ValueError: it is damaged, has other objects than numbers and texts, states more than it
            has, or has another shape.
    """
    try:
        stated, fortran, kind = _header(file)
        if kind.hasobject or kind.names is not None:
            raise _wrong(f"an array of {kind} is not read")
        if shapes and stated not in shapes:
            first, other = (" ".join(map(str, shape)) for shape in (stated, next(iter(shapes))))
            raise _wrong(f"it has the size [{first}], not [{other}]")
        count = math.prod(stated)
        problem = f"it states {count:,} values, and has fewer"
        if not kind.itemsize or count * kind.itemsize > size:
            raise _wrong(problem)
        data = np.empty(count * kind.itemsize, np.uint8)
        view = memoryview(data.data)
        while view and (read := file.readinto(view)):  # type: ignore[attr-defined]
            view = view[read:]
        if view:
            raise _wrong(problem)
        return data.view(kind).reshape(stated, order="F" if fortran else "C")
    except DAMAGED as error:
        raise ValueError(str(error)) from error


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the shape, the order and the type of an array.

    Raises:
        ValueError: the header is damaged, too long or too deep.
    """
    version = np.lib.format.read_magic(file)
    width = 2 if version == (1, 0) else 4
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise _wrong(f"version {version} of the format is not read")
    length = file.read(width)
    size = int.from_bytes(length, "little")
    if size > LARGEST_HEADER:
        raise _wrong(f"its header has {size} bytes, more than {LARGEST_HEADER}")
    header = file.read(size)
    if sum(map(header.count, (b"(", b"[", b"{"))) > _BRACKETS:
        raise _wrong("its header is nested")
    if b"-" in header:
        raise _wrong("its header states a negative number")
    stated = BytesIO(len(header).to_bytes(2, "little") + header)
    shape, fortran, kind = np.lib.format.read_array_header_1_0(stated)
    return shape, fortran, kind


def _wrong(problem: str) -> ValueError:
    return ValueError(problem)


def arrays_of(
    file: IO[bytes],
    size: int,
    names: Collection[str] | None = None,
    largest: int | None = None,
) -> dict[str, NDArray[Any]]:
    """Return the arrays of an `.npz` file by name.

    Args:
        file: the file.
        size: its bytes.
        names: the arrays that are read; None for all.
        largest: maximum number of bytes to which they unpack; by default it depends on `size`.

    Raises:
        ValueError: it is damaged, has too many arrays, or unpacks to too much.
        KeyError: an array is missing.
    """
    try:
        with closing(zipfile.ZipFile(file)) as archive:
            entries = _entries(archive)
            chosen = {name: entries[name] for name in (entries if names is None else names)}
            total = sum(entry.file_size for entry in chosen.values())
            most = max(LARGEST_UNPACKED, LARGEST_RATIO * size) if largest is None else largest
            if total > most:
                raise _wrong(f"it unpacks to {total:,} bytes, more than {most:,}")
            arrays = {}
            for name, entry in chosen.items():
                with archive.open(entry) as array:
                    arrays[name] = array_of(array, entry.file_size)
            return arrays
    except DAMAGED as error:
        raise ValueError(str(error)) from error


def names_of(file: IO[bytes]) -> list[str]:
    """Return the names of the arrays of an `.npz` file, each as often as the file has it.

    Raises:
        ValueError: it is damaged.
    """
    try:
        with closing(zipfile.ZipFile(file)) as archive:
            return [entry.filename.removesuffix(".npy") for entry in archive.infolist()]
    except DAMAGED as error:
        raise ValueError(str(error)) from error


def _entries(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    entries = archive.infolist()
    if len(entries) > MOST_ARRAYS:
        raise _wrong(f"it has {len(entries):,} arrays, more than {MOST_ARRAYS:,}")
    by_name = {entry.filename.removesuffix(".npy"): entry for entry in entries}
    if len(by_name) < len(entries):
        raise _wrong("it has two arrays of the same name")
    return by_name
