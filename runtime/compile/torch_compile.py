"""Compile: torch.compile for each repeated template, with dynamic axes.

Layers of one template share one class, so 6 layers and 60 need the same number of
compiled graphs and the same time to compile.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.fx.experimental._config
from torch import nn

from ..codegen.build import program_of
from ..system.cache import cache_folder

Mode = Literal["auto", "layers", "eager"]
"""`layers` compiles each repeated template; `auto` chooses by device and measurement."""

MEASURED_RUNS = 5
"""Runs of each contestant when `auto` measures; the median counts."""


@dataclass(slots=True)
class CompileReport:
    """What `compile` chose, and how many graphs torch has made since."""

    mode: Literal["layers", "eager"]
    reason: str
    templates: tuple[str, ...] = ()
    """Classes that were compiled."""
    compiled: int = 0
    """Modules that were compiled."""
    graphs_before: int = 0

    @property
    def expected(self) -> int:
        """Graphs that one kind of use needs (training is one, decoding another)."""
        return len(self.templates)

    @property
    def found(self) -> int:
        """Graphs that torch has made in this process since `compile`."""
        return graphs_made() - self.graphs_before

    def __str__(self) -> str:
        """Say in one line what runs."""
        if self.mode == "eager":
            return f"eager: {self.reason}"
        return (
            f"compiled {self.compiled} layers of {len(self.templates)} templates: {self.reason};"
            f" graphs expected {self.expected}, found {self.found}"
        )


def compile_model(
    model: nn.Module,
    mode: Mode = "auto",
    *,
    measure: Callable[[], object] | None = None,
) -> CompileReport:
    """Compile a built model in place, or leave it eager, and say which and why.

    Parameter names do not change, and a compiled model can still be saved.

    Args:
        model: what `build` returned.
        mode: `layers`, `eager`, or `auto`: on an accelerator compiled unless `measure`
            says it is slower, on the CPU eager unless `measure` says it is faster.
        measure: runs the work that matters once, such as a training step.

    Returns:
        The report; its `found` goes on counting.
    """
    program = program_of(model)
    layers = [m for m in model.modules() if type(m).__name__ in program.templates]
    device = next(model.parameters()).device.type
    if mode == "eager" or not layers:
        return CompileReport("eager", "asked for" if layers else "no template is repeated")
    if mode == "auto" and measure is None and device == "cpu":
        return CompileReport("eager", "auto on the CPU, where compiled training is slower")
    eager = _median(measure) if mode == "auto" and measure else None
    ready_compiler()
    before = graphs_made()
    for layer in layers:
        layer.compile(dynamic=True)
    reason = "asked for" if mode == "layers" else f"auto on {device}"
    if eager is not None and measure is not None:
        compiled = _median(measure)
        reason = f"auto measured {compiled * 1e3:.1f} ms compiled, {eager * 1e3:.1f} ms eager"
        if compiled >= eager:
            for layer in layers:
                layer._compiled_call_impl = None  # noqa: SLF001 - undoes Module.compile
            return CompileReport("eager", reason)
    return CompileReport("layers", reason, program.templates, len(layers), before)


def ready_compiler() -> None:
    """Set what every compilation here needs of torch, in this process."""
    # Axes of equal size by chance must not be taken for one axis.
    torch.fx.experimental._config.use_duck_shape = False  # noqa: SLF001 - no public way
    # What Inductor makes is found again by the next process, also after a restart.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "inductor"))


def graphs_made() -> int:
    """Return the graphs that torch has made in this process."""
    # What compiles takes seconds to load: where nothing was compiled it is not there.
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else int(dynamo.counters["stats"]["unique_graphs"])


def _median(run: Callable[[], object]) -> float:
    """Return the median seconds of a run, after two to warm up."""
    times = []
    for index in range(MEASURED_RUNS + 2):
        start = time.perf_counter()
        run()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        if index > 1:
            times.append(time.perf_counter() - start)
    return statistics.median(times)
