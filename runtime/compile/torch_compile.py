"""Compilation of each repeated template by torch.compile, with dynamic axes.

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
from typing import Literal, get_args

import torch
import torch.fx.experimental._config
from torch import nn

from ...specs.findings import InputError, did_you_mean
from ..codegen.generated import program_of
from ..system.cache import cache_folder

Mode = Literal["auto", "layers", "eager"]
"""`layers` compiles each repeated template; `auto` chooses by device and measurement."""

MEASURED_RUNS = 5
"""Timed runs of each variant when `auto` measures; the median is used."""


@dataclass(slots=True)
class CompileReport:
    """The mode that `compile_model` chose, and the number of graphs that torch has made since."""

    mode: Literal["layers", "eager"]
    reason: str
    templates: tuple[str, ...] = ()
    """Names of the compiled classes."""
    compiled: int = 0
    """Number of compiled modules."""
    graphs_before: int = 0

    @property
    def expected(self) -> int:
        """Number of graphs for one kind of use (such as training, or decoding)."""
        return len(self.templates)

    @property
    def found(self) -> int:
        """Number of graphs that torch has made in this process since `compile_model`."""
        return graphs_made() - self.graphs_before

    def __str__(self) -> str:
        """Return a one-line summary."""
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
    """Compile a built model in place, or leave it eager, depending on the mode.

    Parameter names do not change, and a compiled model can still be saved.

    Args:
        model: model from `build`.
        mode: `layers`, `eager`, or `auto`: on an accelerator compiled unless `measure`
            shows that it is slower, on the CPU eager unless `measure` shows that compiled
            is faster.
        measure: callback that runs a typical workload once, such as a training step.

    Returns:
        A report with the choice and its reason; its `found` keeps counting.

    Raises:
        InputError: the model was not built by weft, or there is no such mode.
    """
    if mode not in get_args(Mode):
        help_ = did_you_mean(str(mode), get_args(Mode))
        raise InputError(f"no mode '{mode}'", location="mode", help=help_)
    program = program_of(model)
    layers = [m for m in model.modules() if type(m).__name__ in program.all_templates]
    weight = next(model.parameters(), None)
    device = weight.device.type if weight is not None else "cpu"
    if mode == "eager" or not layers:
        return CompileReport("eager", "requested" if layers else "no template is repeated")
    if mode == "auto" and measure is None and device == "cpu":
        return CompileReport("eager", "auto on the CPU, where compiled training is slower")
    eager = _median(measure) if mode == "auto" and measure else None
    ready_compiler()
    before = graphs_made()
    for layer in layers:
        layer.compile(dynamic=True)
    reason = "requested" if mode == "layers" else f"auto on {device}"
    if eager is not None and measure is not None:
        compiled = _median(measure)
        reason = f"auto measured {compiled * 1e3:.1f} ms compiled, {eager * 1e3:.1f} ms eager"
        if compiled >= eager:
            for layer in layers:
                layer._compiled_call_impl = None  # noqa: SLF001 - undoes Module.compile
            return CompileReport("eager", reason)
    return CompileReport("layers", reason, program.all_templates, len(layers), before)


compile = compile_model  # noqa: A001 - its public name is `weft.compile`


def ready_compiler() -> None:
    """Set the torch options that all compilations here need, in this process.

    They stay, because a compiled module is compiled again whenever a new shape comes.
    """
    # Two axes of equal size by chance must not become one symbolic size.
    torch.fx.experimental._config.use_duck_shape = False  # noqa: SLF001 - no public API
    # Later processes reuse the code that Inductor generates, also after a restart.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "inductor"))


def graphs_made() -> int:
    """Return the number of graphs that torch has made in this process."""
    # Importing Dynamo takes seconds; if nothing was compiled it is not loaded.
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else int(dynamo.counters["stats"]["unique_graphs"])


def _median(run: Callable[[], object]) -> float:
    """Return the median seconds of a run, after two warmup runs."""
    times = []
    for index in range(MEASURED_RUNS + 2):
        start = time.perf_counter()
        run()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        if index > 1:
            times.append(time.perf_counter() - start)
    return statistics.median(times)
