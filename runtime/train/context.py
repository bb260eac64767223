"""The context of a training: its data and objective, progress reports, state and result.

Not here: the loop (`trainer.py`), the settings of a run file (`run.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from ...graphs.ir.graph import Graph
from ...graphs.ir.traverse import position_limits
from ...graphs.passes.objective import deployed_graph
from ...specs.findings import InputError, pointer
from ..checkpoint.state import RunState
from ..compile.roofline import full_speed, peak_flops
from ..compile.torch_compile import CompileReport
from ..data.columns.column import Column
from ..data.columns.fitting import Fitting
from ..data.plans.updates import lengths_in_updates
from ..data.preparation import Report
from ..data.prepare import Prepared, prepare
from ..data.settings import Settings
from ..data.table import Table
from ..system.detail import Detail
from ..system.executors.executor import On
from ..system.executors.units import Watch
from .checks.batches import one_length
from .device import RunDevice
from .distributed.sampler import MicroBatches
from .distributed.world import World
from .losses import LossSums, ObjectiveLosses
from .objective import Objective
from .plan import RunPlan
from .run import Run
from .trackers import TrackedRun, Trackers, TrackerSettings, Warn
from .validation import Validate, validator

if TYPE_CHECKING:
    from .start import StartPlan


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
        """Log one line of text, which may be a `Detail`."""

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
    placement: RunDevice
    tokenizers: Mapping[str, bytes]
    """Files of the columns, such as tokenizers and classes, by name."""
    validate: Validate
    """Measures the model; its result must contain `run.best_value`."""
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
    base: Graph | None = None
    """Graph with the sizes of the base model, if the run's parametrization names one."""
    freeze: tuple[str, ...] = ()
    """Selections of parts whose weights do not train."""
    train: tuple[str, ...] = ()
    """Patterns of weights in these parts that train nevertheless."""
    weights: Mapping[str, Path] = field(default_factory=dict)
    """Node of an objective to the checkpoint that has the weights of its model."""
    start: StartPlan | None = None
    """What comes from another checkpoint."""

    @property
    def model(self) -> Graph:
        """Graph of the model that training leaves behind."""
        return deployed_graph(self.graph)


@dataclass(slots=True)
class Result:
    """Result of a training."""

    state: RunState
    finished: bool
    reason: str
    folder: Path
    """Folder of the run."""
    checkpoint: Path | None
    averaged: Path | None = None
    best: Path | None = None
    report: CompileReport | None = field(default=None, repr=False)


MEASURED_FROM = 1000
"""Minimum updates of a run for which the device's peak FLOP/s is measured."""


def prepared_data(
    run: Run,
    folder: Path,
    report: Report | None = None,
    *,
    processes: int | None = None,
    on: On = "local",
    log: Callable[[str], None] | None = None,
    to: str | None = None,
    watch: Watch | None = None,
) -> Prepared:
    """Prepare the tokenizers and tables of a run, or open them; see `prepare`."""
    return prepare(
        run.data,
        run.tokenizers,
        folder / "prepared",
        report=report,
        processes=processes,
        on=on,
        log=log,
        to=to,
        watch=watch,
    )


def with_prepared(objective: Objective, prepared: Prepared) -> Objective:
    """Return the objective of a run with the sizes of its prepared columns.

    The batches of the prepared tables are padded to lengths that fit it.

    Raises:
        InputError: a text is longer than a model has positions.
        SpecError: the objective has mistakes, or a column does not fill one of its inputs.
    """
    objective = objective.with_columns(prepared.columns)
    for table in (prepared.train, prepared.valid):
        table.fitting = Fitting.of(objective.graph, objective.columns)
    refuse_long_rows(objective.graph, prepared)
    return objective


def refuse_long_rows(graph: Graph, prepared: Prepared) -> None:
    """Raise an error if a text is longer than a model has positions.

    Raises:
        InputError: a row is too long; the help names the setting that cuts it.
    """
    most = min(position_limits(graph), default=None)
    if most is None:
        return
    for name, column in prepared.columns.items():
        type_ = column.inputs.get(name)
        if type_ is None or type_.kind != "ids":
            continue
        for split, table in (("training", prepared.train), ("validation", prepared.valid)):
            longest = dict(zip(table.lengths, table.summary.longest, strict=True)).get(name, 0)
            longest = table.fitting.length(name, longest)
            if longest > most:
                raise InputError(
                    f"the longest {split} text of the column '{name}' has {longest} tokens, special"
                    f" tokens included, but '{graph.name}' has {most} positions",
                    location=f"#{pointer('data', 'columns', name, 'max_length')}",
                    help=f"set 'max_length' of the column to at most {most}, or give the model more"
                    " positions",
                )


def training_context(
    plan: RunPlan,
    folder: Path,
    placement: RunDevice,
    world: World,
    listener: Listener,
    report: Report | None = None,
) -> TrainingContext:
    """Prepare the data of a planned run, and collect everything that its training needs.

    Raises:
        InputError: the data or a checkpoint is wrong.
        SpecError: the run has mistakes.
    """
    run, objective = plan.required()
    listener.log(f"{placement.device}, {placement.precision}: {placement.reason}")
    with world.main_process_first():
        prepared = prepared_data(run, folder, report, log=listener.log)
    objective = with_prepared(objective, prepared)
    graph = objective.graph
    if graph.segments is not None and world.size > 1:
        raise InputError(
            f"'{graph.name}' carries state between batches, so its training runs in one process",
            location="/parallel",
            help="start it without torchrun",
        )
    losses = ObjectiveLosses(graph, run.auxiliary, run.values, run.updates)
    listener.log(f"{graph.name}: {graph.parameters():,} parameters")
    for split in ("train", "valid"):
        listener.log(counted(split, prepared.report[split], "rows"))
    if prepared.train.starts is None and prepared.train.axes and len(prepared.train):
        prepared.train.summary.refuse_unfit(run.token_range()[0])
    if (
        lengths := lengths_in_updates(prepared.train, run.batch_at(1), run.seed, run.batches_at(1))
    ) is not None:
        listener.log(Detail(lengths))
        estimated = any(finding.code == "R07" for finding in plan.warnings)
        if lengths.uniform and not estimated:
            listener.log(f"warning: {one_length(run, str(lengths)).problem}")
    return TrainingContext(
        run=run,
        graph=graph,
        losses=losses,
        corpus=prepared.train,
        folder=folder,
        placement=placement,
        tokenizers=prepared.files,
        validate=validator(run, graph, losses, prepared, placement),
        data=prepared.digest,
        columns=prepared.columns,
        base=None if run.parametrization is None else objective.base(run.parametrization.mup.base),
        listener=listener,
        world=world,
        trackers=opener(run.trackers, run, run.name, folder, listener.log),
        freeze=run.freeze,
        train=run.train,
        weights=objective.weights,
        start=_start_of(run, objective, prepared),
        full_speed=_full_speed(run, graph, prepared, placement, world)
        if world.is_main_process
        else None,
    )


def _start_of(run: Run, objective: Objective, prepared: Prepared) -> StartPlan | None:
    """Return what a run takes from another checkpoint; see `plan_start`."""
    if run.start is None:
        return None
    from .start import plan_start  # noqa: PLC0415 - few runs start from a checkpoint

    return plan_start(run.start, objective, prepared)


def _full_speed(
    run: Run, graph: Graph, prepared: Prepared, placement: RunDevice, world: World
) -> float | None:
    """Return the speed at peak FLOP/s; None for short runs.

    Processes on CPUs are assumed to share one CPU, other processes to have a device each.
    """
    if run.updates < MEASURED_FROM:
        return None
    lengths = dict(zip(prepared.train.lengths, prepared.train.summary.means, strict=True))
    best = peak_flops(placement.device, placement.dtype)
    devices = 1 if placement.device.type == "cpu" else world.size
    return full_speed(graph, lengths, best * devices)


def opener(
    settings: Sequence[TrackerSettings], run: Settings, name: str, folder: Path, warn: Warn
) -> Callable[[int], Trackers]:
    """Return a function that opens the trackers of a run, given the update that it starts from.

    Args:
        settings: the trackers.
        run: settings of the run, which are logged.
        name: name of the run.
        folder: its folder.
        warn: called once for each tracker that fails.
    """

    def opened(update: int) -> Trackers:
        written = run.model_dump(mode="json", by_alias=True)
        tracked = TrackedRun(name=name, folder=folder, settings=written, update=update)
        return Trackers(settings, tracked, warn)

    return opened


def counted(split: str, report: Mapping[str, Any], what: str) -> str:
    """Return a log line with the size of a split, and the dropped examples by reason.

    Args:
        split: name of the split.
        report: report of its preparation.
        what: what the split consists of, such as `pairs`.
    """
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in report["dropped"].items())
    return f"{split}: {report['kept']:,} {what}" + (f"; dropped {dropped}" if dropped else "")
