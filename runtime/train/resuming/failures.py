"""Errors of a training that cannot continue, with the checkpoint and settings that help."""

from __future__ import annotations

from pathlib import Path

from ....specs.findings import InputError
from ..context import TrainingContext
from .retention import checkpoints


def _newest(folder: Path) -> Path | None:
    return next(reversed(checkpoints(folder)), None)


def not_finite(context: TrainingContext, update: int) -> InputError:
    """Return the error of a loss or gradient that is not finite.

    Args:
        context: the training.
        update: number of the last update.
    """
    when = "before" if context.place.waits_for_values else "at"
    newest = _newest(context.folder)
    last = f"; the last good checkpoint is {newest}" if newest else ""
    return InputError(
        f"the loss or its gradient is not finite {when} update {update + 1}{last}",
        place=str(context.folder),
        help="lower the learning rate, raise the warmup, or set 'optimizer.clip'",
    )


def too_large(context: TrainingContext, update: int) -> InputError:
    """Return the error of an update that did not fit into the memory of the device.

    Args:
        context: the training.
        update: number of the last update.
    """
    run, newest = context.run, _newest(context.folder)
    again = f"; continue from {newest} with --resume" if newest else ""
    more = "" if run.activation_checkpointing else ", or set 'activation_checkpointing'"
    return InputError(
        f"the memory of {context.place.device} is too small for update {update + 1}{again}",
        place="/batch/tokens",
        help=f"set 'batch.tokens' to {run.batch.tokens // 2} and 'accumulate' to"
        f" {run.accumulate * 2}, which keeps the tokens of an update{more}",
    )
