"""The context of a training: its inputs, its progress reports, its state and its result.

Not here: the loop (`trainer.py`), the settings of a run file (`run.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ...graphs.ir.graph import Graph
from ...graphs.passes.objective import deployed_graph
from ..compile.torch_compile import CompileReport
from ..data.columns.column import Column
from ..data.table import Table
from .device import Place
from .distributed.sampler import MicroBatches
from .distributed.world import World
from .loss import LossSums
from .reporting.trackers.group import Trackers
from .run import Run


class Losses(Protocol):
    """Interface of the losses of an objective, as the training loop uses them."""

    @property
    def reported(self) -> tuple[str, ...]:
        """Names of the `parts` of its `LossSums`."""

    @property
    def has_nll(self) -> bool:
        """Whether its `LossSums` have a negative log-likelihood without smoothing."""

    @property
    def has_auxiliary(self) -> bool:
        """Whether its `LossSums` have an auxiliary loss."""

    def total(
        self,
        model: nn.Module,
        micro_batches: MicroBatches,
        world: World,
        seeds: tuple[int, int],
        device: torch.device,
    ) -> float | Tensor:
        """Return the number by which the summed loss of an update is divided.

        Args:
            model: the model.
            micro_batches: micro-batches of this process, on the device.
            world: all processes.
            seeds: seed of the run, and number of the update.
            device: device of the model.
        """

    @property
    def carried(self) -> Mapping[str, Tensor]:
        """State between segments of documents, by name; empty without segments."""

    def carry(self, tensors: Mapping[str, Tensor], device: torch.device) -> None:
        """Continue with the `carried` state of a checkpoint, on a device."""

    def loss(self, model: nn.Module, batch: Any) -> LossSums:
        """Return the loss of a batch, summed over its items; called after `total`."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a training, as reported to a `Listener`."""

    update: int
    updates: int
    epoch: int
    loss: float
    """Smoothed loss per target token, in nats, over the updates since the last report."""
    nll: float | None
    """Plain negative log-likelihood per target token, in nats; None if the loss is no other."""
    rate: float
    tokens_per_second: float
    """Source and target tokens, padding not counted."""
    target_tokens_per_second: float
    parts: Mapping[str, float] = field(default_factory=dict)
    """Further losses and scores per item, by name."""


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
    """Graph of the module that trains: of the model, or of an objective."""
    losses: Losses
    corpus: Table
    folder: Path
    """The run's folder."""
    place: Place
    tokenizers: Mapping[str, bytes]
    """Files of the columns, such as tokenizers and classes, by name."""
    validate: Callable[[nn.Module], dict[str, Any]]
    """Measures the model; its result must contain the metric `run.best`."""
    listener: Listener
    full_speed: float | None = None
    """Tokens per second if the device did only matrix products, at its peak FLOP/s; for the MFU."""
    data: str = ""
    """Digest of the training data; empty if it is unknown."""
    world: World = field(default_factory=World)
    """The processes that train the model."""
    columns: Mapping[str, Column] = field(default_factory=dict)
    """Prepared columns by name."""
    pictures: Callable[[nn.Module, Sequence[tuple[Any, Any]]], list[Path]] | None = None
    """Draws the module's first predictions, given as rows with predictions, as PNG files."""
    trackers: Callable[[int], Trackers | None] = field(default=lambda _: None)
    """Opens the trackers of the run, given the update that it starts from."""
    freeze: tuple[str, ...] = ()
    """Selections of parts whose weights do not train."""
    train: tuple[str, ...] = ()
    """Patterns of weights in these parts that train nevertheless."""
    weights: Mapping[str, Path] = field(default_factory=dict)
    """Node of an objective to the checkpoint that has the weights of its model."""
    class_axes: Mapping[str, Mapping[str, tuple[int, ...]] | None] = field(default_factory=dict)
    """For each column of labels, the axes of weights that count its classes, by path, if the run
    starts from a checkpoint; None if the run fixes their number."""

    @property
    def model(self) -> Graph:
        """Graph of the model that training leaves behind."""
        return deployed_graph(self.graph)


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
    loss_scale: dict[str, Any] | None = None
    """Scale of the loss and when it grows, in float16."""
    skipped: int = 0
    """Number of updates that were skipped because a gradient overflowed float16."""

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
