"""The state of a run in `state.json` of a checkpoint: training writes it, commands read it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0)]


class _Stored(BaseModel):
    """Base class of what `state.json` has; other keys are not examined."""

    model_config = ConfigDict(strict=True)


class RunState(_Stored):
    """State of a run, which training changes after each update."""

    update: Count = 0
    epoch: Count = 0
    chunk: Count = 0
    """Number of chunks of the epoch that have been used; data of a few million rows is one."""
    position: Count = 0
    """Number of batches of the chunk that have been used."""
    cuts: list[Annotated[list[Count], Field(min_length=2, max_length=2)]] = []
    """Limits of tokens of these batches, and how many each limited."""
    best: float | None = None
    """Best validation score so far; higher is better (the negated nll if `run.best` is nll)."""
    best_update: Count = 0
    stale: Count = 0
    """Number of validations since the best one."""
    seconds: float = 0.0
    """Training time, including validations."""
    compiled: str | None = None
    """Compile mode that was chosen, so that a resumed run uses it too."""
    data: str = ""
    """Digest of the training data, so that a resumed run can tell whether they have changed."""
    kernels: dict[str, Any] | None = None
    """Kernels that were chosen, so that a resumed run uses them too."""
    loss_scale: dict[str, Any] | None = None
    """Scale of the loss and when it grows, in float16."""
    valid: dict[str, float] = {}
    """Values of the newest validation by name, those of a source as `SOURCE/NAME`."""
    skipped: Count = 0
    """Number of updates that were skipped because a gradient overflowed float16."""
    validation_due: bool = False
    """Whether the validation of this update is still to be done, since a signal came before its
    end."""


class ImportOrigin(_Stored):
    """Where an imported model is from, and how it decodes."""

    table: str | None = None
    model_type: str | None = None
    config: dict[str, Any] = {}
    tokens: dict[str, int | list[int] | None] = {}
    search: dict[str, Any] = {}
    generate: dict[str, float | bool | None] = {}


class StoredState(RunState):
    """The state of a checkpoint, with what identifies its model."""

    fingerprint: str | None = None
    nodes: dict[str, str] = {}
    imported: ImportOrigin = ImportOrigin()
