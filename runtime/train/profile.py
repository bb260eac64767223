"""Profiling of a few updates of a run with torch's profiler; nothing else is written.

The updates are those of the trainer, on the batches of the run.  Waiting for the next batch
has its own scope, separate from the other time between two updates.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.profiler import record_function

from ...specs.findings import InputError
from ..analysis.profile_record import Recorder
from ..analysis.profile_scopes import BETWEEN, DATA, LOSS, UPDATE
from .trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

    from ..analysis.profile_summary import Profile
    from ..data.table import Batch
    from .context import Losses, TrainingContext
    from .distributed.sampler import MicroBatches
    from .history import LogWindow
    from .losses import LossSums

WARMUP = 3
"""Updates before the recorded ones."""


class _Scoped:
    """Losses that are computed inside a profiler scope."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses

    def __getattr__(self, name: str) -> Any:
        return getattr(self._losses, name)

    def loss(self, model: nn.Module, batch: Batch) -> LossSums:
        """Return the loss of a batch, summed over its items."""
        with record_function(LOSS):
            return self._losses.loss(model, batch)


class _DoneError(Exception):
    """Raised when all requested updates are recorded."""


class _Profiled(Trainer):
    """A trainer that profiles some updates and then stops."""

    updates: int
    trace: Path | None
    profile: Profile
    _done = 0

    def _next(self, work: Iterator[MicroBatches], window: LogWindow) -> MicroBatches:
        if self._done == 0:
            self._recorder = Recorder(self.model, self.context.graph, self.context.placement.device)
            self._between = ExitStack()
        if self._done == WARMUP:
            self._recorder.start()
        with record_function(DATA) if self._done >= WARMUP else nullcontext():
            return super()._next(work, window)

    def _update(self, *args: Any) -> Tensor:
        self._between.close()
        with record_function(UPDATE):
            sums = super()._update(*args)
        self._done += 1
        if self._done == WARMUP + self.updates:
            self.profile = self._recorder.stop(self.updates, self.trace)
            raise _DoneError
        if self._done > WARMUP:
            self._between.enter_context(record_function(BETWEEN))
        return sums


def profile_run(context: TrainingContext, updates: int, trace: Path | None = None) -> Profile:
    """Profile the first updates of a run.

    Args:
        context: the training to profile; its folder is not changed.
        updates: number of recorded updates, at least 1, after `WARMUP` unrecorded ones.
        trace: file for torch's trace; None writes none.

    Raises:
        InputError: the run ends before all updates are recorded.
    """
    run = context.run.model_copy(
        update={
            "updates": WARMUP + updates,
            # A validation or a checkpoint in between would count as time of an update.
            "evaluate": context.run.evaluate.model_copy(update={"every": WARMUP + updates}),
            "checkpoint": context.run.checkpoint.model_copy(
                update={"every": WARMUP + updates, "seconds": float("inf")}
            ),
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        temporary = replace(
            context,
            run=run,
            losses=_Scoped(context.losses),
            folder=Path(folder),
            trackers=lambda _: None,  # a profile is not a run, which trackers would begin
        )
        trainer = _Profiled(temporary, resume=False)
        trainer.updates, trainer.trace = updates, trace
        try:
            trainer.train()
        except _DoneError:
            return trainer.profile
    raise InputError("the run ended before it could be profiled", help="profile fewer updates")
