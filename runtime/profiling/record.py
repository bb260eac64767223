"""Record: run something under torch's profiler and say where its time went."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from ...graphs.ir.graph import Graph
from .scopes import UPDATE, scoped
from .summary import Profile, summarize


class Recorder:
    """Torch's profiler, with the names of a spec."""

    def __init__(self, model: nn.Module, graph: Graph, device: torch.device) -> None:
        """Prepare to record.

        Args:
            model: built from the graph.
            graph: gives the names.
            device: where the model is.
        """
        self._model, self._graph, self._device = model, graph, device
        self._open = ExitStack()

    def start(self) -> None:
        """Begin."""
        activities = [ProfilerActivity.CPU]
        if self._device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        self._wait()
        self._open.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # torch's, about its own settings
        self._open.enter_context(scoped(self._model, self._graph))
        self._seen = self._open.enter_context(
            profile(activities=activities, profile_memory=True, acc_events=True)
        )
        self._began = time.perf_counter()

    def stop(self, updates: int, trace: Path | None = None) -> Profile:
        """End, and return where the time went.

        Args:
            updates: how many were made since the start.
            trace: file for torch's own trace, as Chrome and Perfetto open it.
        """
        self._wait()
        seconds = time.perf_counter() - self._began
        self._open.close()
        if trace is not None:
            self._seen.export_chrome_trace(str(trace))
        return summarize(
            list(self._seen.events() or ()),
            updates=updates,
            seconds=seconds / updates,
            device=self._device.type,
        )

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def record(
    update: Callable[[], None],
    model: nn.Module,
    graph: Graph,
    *,
    updates: int,
    warmup: int,
    device: torch.device,
) -> Profile:
    """Return where the time of some updates goes.

    Args:
        update: makes one; has the scope `LOSS` around the forward pass.
        model: what is updated, built from the graph.
        graph: gives the names.
        updates: how many are recorded.
        warmup: how many go before, unrecorded.
        device: where the model is.
    """
    for _ in range(warmup):
        update()
    recorder = Recorder(model, graph, device)
    recorder.start()
    for _ in range(updates):
        with record_function(UPDATE):
            update()
    return recorder.stop(updates)
