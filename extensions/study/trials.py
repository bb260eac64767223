"""The trials of a search, as a file in the folder of the study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from ...plugin import InputError
from .jobs import read_json, write_json
from .planning.space import Axis, Value

FILE = "search.json"
"""File in the folder of a study that lists the trials of its search."""

TrialState = Literal["running", "done", "pruned", "failed", "refused"]


@dataclass(slots=True, kw_only=True)
class StudyTrial:
    """One row that a search tries."""

    number: int
    values: dict[str, Value]
    """Value of each factor."""
    state: TrialState = "running"
    """`running` is also a trial that was interrupted; `refused` has mistakes, and never trains."""
    jobs: dict[str, str] = field(default_factory=dict)
    """Seed to the key of its job."""
    value: float | None = None
    """Mean over seeds of the metric on the validation data."""
    curve: list[float] = field(default_factory=list)
    """Validations during the training with the first seed."""
    parameters: int | None = None
    """Parameters of the deployed model."""
    seconds: float = 0.0
    """Time of its trainings."""
    why: str = ""
    """Why it failed or was refused."""
    context: str = ""
    """Digest of what its value depends on besides the factors, such as the base run."""


def read_trials(folder: Path, axes: Sequence[Axis]) -> tuple[list[StudyTrial], list[StudyTrial]]:
    """Return the trials of the current factors, and those of others.

    Args:
        folder: folder of the study.
        axes: the current factors.

    Raises:
        InputError: the file is damaged.
    """
    path = folder / FILE
    if not path.is_file():
        return [], []
    try:
        trials = [StudyTrial(**entry) for entry in read_json(path)["trials"]]
    except (TypeError, KeyError) as error:
        raise InputError(
            f"the file does not list trials: {error}",
            location=str(path),
            help="remove it; what is trained stays in 'jobs'",
        ) from error
    fitting = [trial for trial in trials if _fits(trial.values, axes)]
    return fitting, [trial for trial in trials if trial not in fitting]


def _fits(values: Mapping[str, Any], axes: Sequence[Axis]) -> bool:
    names = {axis.name for axis in axes}
    return values.keys() == names and all(axis.has(values[axis.name]) for axis in axes)


def write_trials(folder: Path, trials: Sequence[StudyTrial]) -> None:
    """Write the trials of a search.

    Raises:
        InputError: the file cannot be written.
    """
    write_json(folder / FILE, {"trials": [asdict(trial) for trial in trials]})
