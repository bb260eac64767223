"""The context of a training: its inputs, its progress reports, its state and its result.

Not here: the loop (`trainer.py`), the settings of a run file (`run.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from ...graphs.ir.graph import Graph
from ..compile.torch_compile import CompileReport
from ..data.batches import Batch
from ..data.shards.corpus import Corpus
from .device import Place
from .distributed.world import World
from .loss import LossSums
from .run import Run


class Task(Protocol):
    """Interface of a task, as the training loop uses it."""

    def loss(self, model: nn.Module, batch: Batch) -> LossSums:
        """Return the loss of a batch, summed over its target tokens."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a training, as reported to a `Listener`."""

    update: int
    updates: int
    epoch: int
    loss: float
    """Smoothed loss per target token, in nats, over the updates since the last report."""
    nll: float
    """Plain negative log-likelihood per target token, in nats."""
    rate: float
    tokens_per_second: float
    """Source and target tokens, padding not counted."""
    target_tokens_per_second: float


class Listener(Protocol):
    """Callbacks of a training."""

    def log(self, text: str) -> None:
        """Log one line of text."""

    def progress(self, progress: Progress) -> None:
        """Report the progress of the run."""

    def validated(self, update: int, values: Mapping[str, Any]) -> None:
        """Report the results of a validation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingContext:
    """Everything that a training needs: its run and the objects prepared for it."""

    run: Run
    graph: Graph
    task: Task
    corpus: Corpus
    folder: Path
    """The run's folder."""
    place: Place
    tokenizers: Mapping[str, bytes]
    pad: int
    eos: int
    validate: Callable[[nn.Module], dict[str, Any]]
    """Measures the model; its result must contain the metric `run.best`."""
    listener: Listener
    full_speed: float | None = None
    """Tokens per second if the device did only matrix products, at its peak FLOP/s; for the MFU."""
    data: str = ""
    """Digest of the training data; empty if it is unknown."""
    world: World = field(default_factory=World)
    """The processes that train the model."""


@dataclass(slots=True)
class State:
    """State of a run, as saved in the state.json of a checkpoint."""

    update: int = 0
    epoch: int = 0
    position: int = 0
    """Number of batches of the epoch that have been used."""
    best: float | None = None
    """Best validation score so far; higher is better (the negated nll if `run.best` is nll)."""
    best_update: int = 0
    stale: int = 0
    """Number of validations since the best one."""
    seconds: float = 0.0
    """Training time, including validations."""
    compiled: str | None = None
    """Compile mode that was chosen, so that a resumed run uses it too."""
    data: str = ""
    """Digest of the training data, so that a resumed run can tell whether they have changed."""
    kernels: dict[str, Any] | None = None
    """Kernels that were chosen, so that a resumed run uses them too."""

    def as_json(self) -> dict[str, Any]:
        """Return the state as JSON-compatible data."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Result:
    """Result of a training."""

    state: State
    finished: bool
    reason: str
    checkpoint: Path | None
    averaged: Path | None = None
    best: Path | None = None
    report: CompileReport | None = field(default=None, repr=False)
