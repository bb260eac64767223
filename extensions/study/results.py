"""What a job of a study has measured, as files: its scores, and the sums of each example."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...plugin import InputError
from ...runtime.data.array_files import arrays_of
from ...runtime.system.strangers import read_in
from .jobs import RESULT, Job, Trained, read_json

LARGEST = 2**26
"""Bytes of an unpacked file, so that a damaged or hostile one cannot fill memory or the disk."""
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


def score_of(job: Job, metric: str) -> float:
    """Return the value of a metric on the validation data of a job that is done."""
    return float(read_json(job.measured / RESULT, JobResult)["splits"]["valid"]["scores"][metric])


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
    arrays = arrays_of(io.BytesIO(content), len(content), largest=LARGEST)
    for array in arrays.values():
        if array.dtype != np.float64 or array.ndim != 2:  # noqa: PLR2004
            msg = f"an array of {array.dtype} with shape {array.shape} is not one of sums"
            raise ValueError(msg)
    return arrays


def sums_of(arrays: Mapping[str, NDArray[np.float64]], metric: str) -> NDArray[np.float64] | None:
    """Return the sums of a metric; None if its value is not a function of sums."""
    return arrays.get(file_of(metric))
