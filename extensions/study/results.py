"""What a job of a study has measured, as files: its scores, and the sums of each example."""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from ...plugin import InputError
from ...runtime.system.strangers import read_in
from .jobs import Trained

LARGEST = 2**26
"""Bytes of an unpacked file, so that a damaged or hostile one cannot fill memory or the disk."""
DAMAGED = (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError)
"""What reading a damaged or encrypted archive raises, besides `OSError` and `ValueError`."""
LENGTHS = "(lengths)"
"""Name of the array with the words of each reference."""


@dataclass(frozen=True, slots=True)
class SplitScores:
    """What is measured on a split, as `result.json` has it."""

    rows: int
    losses: dict[str, float]
    scores: dict[str, float]
    signatures: dict[str, str]


@dataclass(frozen=True, slots=True)
class JobResult:
    """The content of `result.json`."""

    training: Trained
    splits: dict[str, SplitScores]


def file_of(name: str) -> str:
    """Return the name of an array in a file, which may not contain every character."""
    return name.replace("/", "_").replace(":", "_")


def read_sums(folder: Path, split: str) -> dict[str, NDArray[np.float64]]:
    """Return the sums of each example of a split, by metric with `_` for `:`.

    Raises:
        InputError: the file is missing or damaged.
    """
    path = folder / f"{split}.sums.npz"
    try:
        return arrays_in(read_in(folder, path.name, LARGEST))
    except (InputError, ValueError) as error:
        problem = error.problem if isinstance(error, InputError) else error
        raise InputError(
            f"cannot read the file: {problem}", location=str(path), help="run the study again"
        ) from error


def arrays_in(content: bytes) -> dict[str, NDArray[np.float64]]:
    """Return the arrays of an `.npz` file: float64, [examples, sums].

    The sizes that the file states are checked before memory is reserved for them.

    Raises:
        ValueError: the file is damaged, too large, or has other arrays.
    """
    arrays: dict[str, NDArray[np.float64]] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > LARGEST:
                msg = f"the arrays have more than {LARGEST:,} bytes"
                raise ValueError(msg)
            for entry in archive.infolist():
                with archive.open(entry) as file:
                    arrays[entry.filename.removesuffix(".npy")] = _array(file, entry.file_size)
    except DAMAGED as error:
        raise ValueError(str(error)) from error
    return arrays


def _array(file: IO[bytes], size: int) -> NDArray[np.float64]:
    """Return the array in a file of a known size.

    Raises:
        ValueError: it has another type or size than it should have.
    """
    version = np.lib.format.read_magic(file)
    shape, fortran, kind = np.lib.format.read_array_header_1_0(file)
    if version != (1, 0) or kind != np.float64 or len(shape) != 2:  # noqa: PLR2004
        msg = f"an array of {kind} with shape {shape} is not one of sums"
        raise ValueError(msg)
    count = math.prod(shape)
    if count * 8 > size:
        msg = f"an array says that it has {count:,} numbers, and has fewer"
        raise ValueError(msg)
    values = np.frombuffer(file.read(count * 8), np.float64)
    return values.reshape(shape, order="F" if fortran else "C")


def sums_of(arrays: Mapping[str, NDArray[np.float64]], metric: str) -> NDArray[np.float64] | None:
    """Return the sums of a metric; None if its value is not a function of sums."""
    return arrays.get(file_of(metric))
