"""Recording of updates with torch's profiler."""

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
from .profile_scopes import UPDATE, scoped
from .profile_summary import Profile, summarize


class Recorder:
    """Torch's profiler, with a scope for each node of a spec."""

    def __init__(self, model: nn.Module, graph: Graph, device: torch.device) -> None:
        """Prepare the recorder.

        Args:
            model: model built from `graph`.
            graph: graph with the names of the nodes.
            device: device of the model.
        """
        self._model, self._graph, self._device = model, graph, device
        self._open = ExitStack()

    def start(self) -> None:
        """Start recording."""
        activities = [ProfilerActivity.CPU]
        if self._device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        self._wait()
        self._open.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # torch warns about its own settings
        self._open.enter_context(scoped(self._model, self._graph))
        self._profiler = self._open.enter_context(
            profile(activities=activities, profile_memory=True, acc_events=True)
        )
        self._started = time.perf_counter()

    def stop(self, updates: int, trace: Path | None = None) -> Profile:
        """Stop recording and return the profile.

        Args:
            updates: number of updates since the start.
            trace: file for torch's trace, for Chrome or Perfetto; None writes none.
        """
        self._wait()
        seconds = time.perf_counter() - self._started
        self._open.close()
        if trace is not None:
            self._profiler.export_chrome_trace(str(trace))
        return summarize(
            list(self._profiler.events() or ()),
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
    """Profile some updates.

    Args:
        update: callback that makes one update, with the scope `LOSS` around its forward pass.
        model: model built from `graph`.
        graph: graph with the names of the nodes.
        updates: number of recorded updates.
        warmup: number of unrecorded updates before them.
        device: device of the model.
    """
    for _ in range(warmup):
        update()
    recorder = Recorder(model, graph, device)
    recorder.start()
    for _ in range(updates):
        with record_function(UPDATE):
            update()
    return recorder.stop(updates)
