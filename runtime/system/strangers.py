"""Folders that strangers may have written: checkpoints, packed studies, imported models.

Every file of such a folder is opened through this module.  A file must be a regular one: a pipe or
a device could keep a command waiting for ever.  A link may lead to another file of the folder, but
not out of it: commands copy what they read, and would publish the reader's own files.  Sizes are
bounded before anything is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...specs.findings import InputError
from ...specs.json_tree import Source
from ...specs.reader import LARGEST, read_json, text_of
from ...specs.regular_files import path_in, refused
from .folders import refuse_undecodable

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_FILE = 256 << 20
"""Maximum bytes of a file that is read as a unit, such as a tokenizer or a history."""
LARGEST_HEADER = 32 << 20
"""Maximum bytes of the header of a safetensors file."""
MOST_TENSORS = 1 << 16
"""Maximum number of tensors in a safetensors file, which needs a second to open."""
_SIZE = 8
"""Bytes of the size of a safetensors header, at the beginning of the file."""


def has_file(folder: Path, name: str) -> bool:
    """Return whether a folder has something of a name: a file, or what `path_in` refuses."""
    path = folder / name
    return path.is_symlink() or path.exists()


@contextmanager
def open_in(folder: Path, name: str) -> Iterator[BufferedReader]:
    """Open a file of a folder that a stranger may have written, for reading bytes.

    Raises:
        DamagedError: it is refused as by `path_in`, or cannot be read.
    """
    path = path_in(folder, name)
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        problem = f"cannot read the file: {error.strerror}"
        raise refused(folder / name, problem) from error


def read_in(folder: Path, name: str, largest: int = LARGEST_FILE) -> bytes:
    """Return the content of a file of a folder that a stranger may have written.

    Args:
        folder: the folder.
        name: path of the file relative to it.
        largest: maximum size in bytes.

    Raises:
        DamagedError: it is refused as by `path_in`, cannot be read, or is larger.
    """
    with open_in(folder, name) as file:
        data = file.read(largest + 1)
    if len(data) > largest:
        raise refused(folder / name, f"larger than {largest} bytes")
    return data


def json_in(
    folder: Path,
    name: str,
    largest: int = LARGEST,
    constant: Callable[[str], Any] | None = None,
) -> tuple[Any, Source]:
    """Return the JSON value of a file of such a folder, and its path with its text, for findings.

    Args:
        folder: the folder.
        name: path of the file relative to it.
        largest: maximum size in bytes.
        constant: value of `Infinity`, `-Infinity` and `NaN`; by default they are refused.

    Raises:
        DamagedError: it is refused as by `path_in`, cannot be read, is larger, or is not UTF-8.
        SpecError: the text is not JSON, is nested too deeply, or has a duplicate key.
    """
    path = str(folder / name)
    data = read_in(folder, name, largest)
    try:
        source = Source(path, text_of(data, path, largest))
    except InputError as error:
        raise refused(folder / name, error.problem) from error
    return read_json(source.text, source, constant), source


def object_in(folder: Path, name: str, largest: int = LARGEST) -> dict[str, Any]:
    """Return the JSON object of a file of such a folder.

    Raises:
        DamagedError: as of `json_in`, or the value is not an object.
        SpecError: as of `json_in`.
    """
    value, _ = json_in(folder, name, largest)
    if not isinstance(value, dict):
        raise refused(folder / name, "the file is not a JSON object")
    return value


@contextmanager
def tensors_of(folder: Path, name: str) -> Iterator[Any]:
    """Open a safetensors file of such a folder, whose tensors are read one at a time.

    Raises:
        DamagedError: it is refused as by `path_in`, or has too many tensors.
        OSError: the file cannot be read.
        SafetensorError: the file is damaged.
    """
    from safetensors import safe_open

    with safe_open(_bounded(folder, name), framework="pt") as file:
        yield file


def all_tensors_of(folder: Path, name: str) -> dict[str, Tensor]:
    """Return all tensors of a safetensors file of such a folder.

    Raises:
        DamagedError: as of `tensors_of`.
        OSError: the file cannot be read.
        SafetensorError: the file is damaged.
    """
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = load_file(_bounded(folder, name))
    return tensors


def _bounded(folder: Path, name: str) -> Path:
    """Return the path of a safetensors file with a bounded header.

    Raises:
        DamagedError: it is refused as by `path_in`, or has too many tensors.
    """
    refuse_undecodable(folder)
    path = path_in(folder, name)
    with open_in(folder, name) as file:
        size = int.from_bytes(file.read(_SIZE), "little")
        if size > LARGEST_HEADER:
            problem = f"the header has {size} bytes, more than {LARGEST_HEADER}"
            raise refused(folder / name, problem)
        header = file.read(size)
    try:
        count = len(json.loads(header))
    except (ValueError, TypeError, RecursionError):
        return path  # safetensors says what is wrong
    if count > MOST_TENSORS:
        raise refused(folder / name, f"the file has {count} tensors, more than {MOST_TENSORS}")
    return path


def checkpoint_in(folder: Path) -> Path:
    """Return the checkpoint to use of the folder of a run; other folders are returned."""
    if has_file(folder, "spec.json"):
        return folder
    inner = (folder / name for name in ("averaged", "best"))
    regular = (path for path in inner if path.is_dir() and not path.is_symlink())
    return next((path for path in regular if has_file(path, "spec.json")), folder)
