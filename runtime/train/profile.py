"""Profiled training: a few updates of a run under torch's profiler, and nothing is kept.

The updates are the trainer's own, on the run's own batches.  Waiting for the next of them
stands in a scope of its own, apart from what else passes between two updates.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.profiler import record_function

from ...specs.findings import InputError
from ..profiling.record import Recorder
from ..profiling.scopes import BETWEEN, DATA, LOSS, UPDATE
from .trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

    from ..data.batches import Batch
    from ..profiling.summary import Profile
    from .context import Task, TrainingContext
    from .distributed.sampler import MicroBatches
    from .loss import LossSums
    from .reporting.metrics_window import Window

WARMUP = 3
"""Updates before those that are recorded."""


class _Scoped:
    """A task whose loss stands in a scope."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def loss(self, model: nn.Module, batch: Batch) -> LossSums:
        """Return the summed loss of a batch."""
        with record_function(LOSS):
            return self._task.loss(model, batch)


class _DoneError(Exception):
    """All that was to be recorded is."""


class _Profiled(Trainer):
    """A trainer that records some updates and then stops."""

    updates: int
    trace: Path | None
    found: Profile
    _done = 0

    def _next(self, work: Iterator[MicroBatches], window: Window) -> MicroBatches:
        if self._done == 0:
            self._recorder = Recorder(self.model, self.context.graph, self.context.place.device)
            self._between = ExitStack()
        if self._done == WARMUP:
            self._recorder.start()
        with record_function(DATA) if self._done >= WARMUP else nullcontext():
            return super()._next(work, window)

    def _update(self, *given: Any) -> Tensor:
        self._between.close()
        with record_function(UPDATE):
            sums = super()._update(*given)
        self._done += 1
        if self._done == WARMUP + self.updates:
            self.found = self._recorder.stop(self.updates, self.trace)
            raise _DoneError
        if self._done > WARMUP:
            self._between.enter_context(record_function(BETWEEN))
        return sums


def profile_run(context: TrainingContext, updates: int, trace: Path | None = None) -> Profile:
    """Return where the time of a run's first updates goes.

    Args:
        context: the run; its folder is not touched.
        updates: how many are recorded, at least one, after `WARMUP` others.
        trace: file for torch's own trace.
    """
    run = context.run.model_copy(
        update={
            "updates": WARMUP + updates,
            # A validation or a checkpoint on the way would count as an update's time.
            "evaluate": context.run.evaluate.model_copy(update={"every": WARMUP + updates}),
            "checkpoint": context.run.checkpoint.model_copy(
                update={"every": WARMUP + updates, "seconds": float("inf")}
            ),
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        apart = replace(context, run=run, task=_Scoped(context.task), folder=Path(folder))
        trainer = _Profiled(apart, resume=False)
        trainer.updates, trainer.trace = updates, trace
        try:
            trainer.train()
        except _DoneError:
            return trainer.found
        finally:
            trainer.history.close()
    raise InputError("the run ended before it could be profiled", help="profile fewer updates")
