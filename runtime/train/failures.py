"""Errors of a training that cannot continue, with the checkpoint and settings that help."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Literal

import torch

from ...specs.findings import InputError
from .checks.settings import has_time_axis, longest_text
from .context import State, TrainingContext
from .retention import checkpoints
from .run import Run


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
        location=str(context.folder),
        help="lower the learning rate, raise the warmup, or set 'optimizer.clip'",
    )


@contextmanager
def enough_memory(
    context: TrainingContext, state: State, during: Literal["update", "validation"] = "update"
) -> Iterator[None]:
    """Name the settings that need less memory if that of the device is too small.

    Args:
        context: the training.
        state: its state, which knows the last update.
        during: what is computed.

    Raises:
        InputError: the memory of the device is too small.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise too_large(context, state.update, during) from error


def too_large(
    context: TrainingContext, update: int, during: Literal["update", "validation"] = "update"
) -> InputError:
    """Return the error of an update, or a validation, that did not fit into the device's memory.

    Args:
        context: the training.
        update: number of the last update.
        during: what did not fit.
    """
    run, newest = context.run, _newest(context.folder)
    again = f"; continue from {newest} with --resume" if newest else ""
    failed = f"update {update + 1}"
    smaller, more = _smaller_batches(run), []
    if during == "validation":
        failed = f"the validation after update {update}"
        more += ["give the predictor a smaller 'beam'"] if hasattr(run.predict, "beam") else []
    elif not run.activation_checkpointing:
        more += ["set 'activation_checkpointing'"]
    ways = [*([smaller] if smaller else []), *(more or ["train a smaller model"])]
    return InputError(
        f"the memory of {context.place.device} is too small for {failed}{again}",
        location="/batch/tokens" if has_time_axis(run) else "/batch/max_sentences",
        help=", or ".join(ways),
    )


def _smaller_batches(run: Run) -> str:
    """Return how to halve the batches of a run; "" if they cannot be smaller."""
    tokens, sentences = run.batch.tokens // 2, (run.batch.max_sentences or 0) // 2
    sizes = {}
    if has_time_axis(run):
        sizes["batch.tokens"] = tokens
    if run.batch.max_sentences is not None:
        sizes["batch.max_sentences"] = sentences
    if min(sizes.values()) < 1 or (has_time_axis(run) and tokens < max(2, longest_text(run) or 0)):
        return ""
    written = [f"'{name}' to {size}" for name, size in sizes.items()]
    return (
        f"set {', '.join(written)} and 'accumulate' to {run.accumulate * 2}, which keeps the"
        f" {'tokens' if has_time_axis(run) else 'rows'} of an update"
    )


@contextmanager
def stop_requested(stop: Callable[[int], None], *, again_after: float = 0.0) -> Iterator[None]:
    """Turn SIGINT and SIGTERM into a stop request; a second signal has its default effect.

    Args:
        stop: callback, called with the signal number.
        again_after: seconds within which a repeated signal counts as the same request: under
            torchrun Ctrl-C arrives twice, from the terminal and from torchrun.
    """
    watched = (signal.SIGINT, signal.SIGTERM)
    first_at: list[float] = []

    def handle(number: int, frame: FrameType | None) -> None:
        stop(number)
        if again_after and not first_at:
            first_at.append(time.monotonic())
            return
        if first_at and time.monotonic() - first_at[0] < again_after:
            return
        for signal_number in watched:
            signal.signal(signal_number, before[signal_number])
        if first_at:
            signal.raise_signal(number)
        del frame

    try:
        before = {signal_number: signal.signal(signal_number, handle) for signal_number in watched}
    except ValueError:  # not the main thread: the caller handles signals
        yield
        return
    try:
        yield
    finally:
        for signal_number in watched:
            signal.signal(signal_number, before[signal_number])
