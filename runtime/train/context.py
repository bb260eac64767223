"""The context of a training: its inputs, its state and its result.

Not here: the loop (`trainer.py`), the run as written (`run.py`).
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
    """What the loop needs to know of a task."""

    def loss(self, model: nn.Module, batch: Batch) -> LossSums:
        """Return the summed loss of a batch."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What the loop reports."""

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
    """Who hears about a run."""

    def log(self, text: str) -> None:
        """Hear one line."""

    def progress(self, progress: Progress) -> None:
        """Hear how far the run is."""

    def validated(self, update: int, values: Mapping[str, Any]) -> None:
        """Hear a validation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingContext:
    """All that a training needs beside its run."""

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
    """Measures the model; gives at least what `run.best` names."""
    listener: Listener
    full_speed: float | None = None
    """Tokens a second at which the device would do matrix products and nothing else."""
    world: World = field(default_factory=World)
    """The processes that train it."""


@dataclass(slots=True)
class State:
    """Where a run is; what a checkpoint's state.json holds."""

    update: int = 0
    epoch: int = 0
    position: int = 0
    """Batches of the epoch that are used."""
    best: float | None = None
    best_update: int = 0
    stale: int = 0
    """Validations since the best one."""
    seconds: float = 0.0
    """Time trained, validations counted."""
    compiled: str | None = None
    """What `compile` chose, so that a resumed run does the same."""
    kernels: dict[str, Any] | None = None
    """Which kernels were chosen, likewise."""

    def as_json(self) -> dict[str, Any]:
        """Return the state as plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Result:
    """How a training ended."""

    state: State
    finished: bool
    reason: str
    checkpoint: Path | None
    averaged: Path | None = None
    best: Path | None = None
    report: CompileReport | None = field(default=None, repr=False)
