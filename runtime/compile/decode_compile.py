"""Compilation of decoding steps, chosen by a cached measurement.

The pass `compile` names the layers whose steps are compiled, with dynamic lengths and rows;
layers of one template share one graph.  Compiling takes seconds, so `auto` compiles only if there
is enough work to make up for it, after timing a plain and a compiled step on the current state.
On a CPU, where compiled steps gain little and compiling takes 165 MB, only programs that expect
much work, such as a server, compile to measure; others use the cached measurement.
If compiling fails, steps run uncompiled and the reason is logged.

On a CUDA device `auto` compiles nothing: it records steps as CUDA graphs from the second batch on,
since one batch visits each position once and replays nothing.  On an H200, with 256 sentences in
greedy search, that is 4.4 times as fast as uncompiled steps.

Not here: compiled training (`torch_compile.py`), the module that decodes (`decoder.py`), recorded
steps (`decode/graphed.py`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...blocks.kernels.compiled_steps import CompiledSteps
from ...blocks.kernels.decode_state import State
from ..codegen.generated import program_of

Mode = Literal["undecided", "plain", "compiled", "recorded"]
CompileChoice = Literal["auto", "on", "off", "graphs"]
"""`off` never compiles, `on` compiles at once, `graphs` replays uncompiled steps from CUDA graphs,
and `auto` does that on a CUDA device; elsewhere it compiles if a measurement shows a gain."""

_MODES: Mapping[CompileChoice, Mode] = {
    "auto": "undecided",
    "on": "compiled",
    "off": "plain",
    "graphs": "recorded",
}
BACKEND = "inductor"
"""Backend of torch.compile."""
UNTRIED = 150.0
"""Seconds of steps, on a CPU of expected ones, after which compiling for a measurement is
worthwhile: about ten times the compile time, and the same amount of work is expected to follow."""
KNOWN = 10.0
"""Seconds of steps after which a cached measurement is looked up."""
GAIN = 1.05
"""Minimum speedup of compiled steps."""
RUNS = 7
"""Timed runs of each variant after two warmup runs; the median is used."""
FIRST = 2
"""First position that is compiled: positions 0 and 1 would each need their own graph."""
GRAPHS = 6
"""Maximum number of graphs per template: one or several sentences, one or several beams, ..."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Measured times of a step."""

    uncompiled: float
    """Seconds of an uncompiled step."""
    compiled: float
    """Seconds of a compiled step."""
    compiling: float
    """Seconds of compiling."""
    rows: int
    """Number of rows that were decoded in parallel."""

    @property
    def gain(self) -> float:
        """Speedup of a compiled step."""
        return self.uncompiled / self.compiled

    def pays(self, work: float) -> bool:
        """Return whether compiling pays off for `work` seconds of uncompiled steps."""
        return self.gain >= GAIN and work * (1 - 1 / self.gain) > self.compiling

    def __str__(self) -> str:
        """Return a one-line summary."""
        return (
            f"{self.compiled * 1e3:.1f} ms compiled, {self.uncompiled * 1e3:.1f} ms not, for "
            f"{self.rows} rows; compiling takes {self.compiling:.0f} s"
        )


def _silent(_: str) -> None:
    """Discard a log line."""


class Steps:
    """Runs the decoding steps of one model, plain, compiled or recorded."""

    def __init__(
        self,
        choice: CompileChoice = "off",
        *,
        work: float = 0.0,
        log: Callable[[str], None] | None = None,
    ) -> None:
        """Start with plain steps, unless `choice` is `on`.

        Args:
            choice: requested mode.
            work: expected seconds of steps, if known; at least as many as have already run are
                expected to follow.
            log: callback for log lines; called with the choice and its reason.
        """
        self.choice, self.work, self.spent = choice, work, 0.0
        self.mode: Mode = _MODES[choice]
        self.may_compile = choice in {"auto", "on"}
        """Whether the graph of the module that decodes gets compiled steps."""
        self._batches = 0
        self.reason = "requested"
        self.log = log or _silent
        self._logged = False
        self._measurements: dict[str, StepTimes | None] = {}
        self._models: dict[int, _Compiled] = {}
        self._keys: dict[tuple[int, int], str] = {}
        """Cache keys by model and number of rows: a long command looks one up in each step."""

    def __str__(self) -> str:
        """Return a one-line summary of the choice."""
        return f"steps: {self.mode}, {self.reason}"

    def settle_on(self, device: torch.device) -> None:
        """Let `auto` record steps if this is the device of the model and has CUDA graphs."""
        if self.mode == "undecided" and device.type == "cuda":
            self.mode, self.may_compile = "recorded", False

    def records_batch(self) -> bool:
        """Count a batch, and return whether its steps are recorded or replayed."""
        self._batches += 1
        return self.mode == "recorded" and (self.choice == "graphs" or self._batches > 1)

    def recorded(self, failure: str = "") -> None:
        """Log that a step was recorded, once; after a failure, all later steps are plain."""
        if failure:
            self._settle("plain", f"recording them as a CUDA graph failed: {failure}")
        elif not self._logged:
            self.reason, self._logged = (
                "as CUDA graphs, replayed for batches of similar sizes",
                True,
            )
            self.log(str(self))

    def run(
        self,
        model: Any,
        moving: Mapping[str, Tensor],
        state: Any,
        position: int,
        *,
        last: bool = False,
    ) -> dict[str, Tensor]:
        """Run the `step` of a model and return its outputs.

        Args:
            model: the module of a `Decoder`, after the pass `compile` unless steps are plain.
            moving: inputs at the next positions of every row.
            state: decoding state from `begin`.
            position: first of these positions.
            last: whether the buffers have no capacity for another position; full buffers would
                need their own graph.
        """
        outputs: dict[str, Tensor]
        single = next(iter(moving.values())).size(1) == 1
        if self.mode in {"plain", "recorded"} or position < FIRST or last or not single:
            outputs = model.step(**moving, state=state, position=position)
            return outputs
        if self.mode == "compiled":
            return self._compiled_step(model, moving, state, position)
        start = time.perf_counter()
        outputs = model.step(**moving, state=state, position=position)
        self.spent += time.perf_counter() - start
        self._decide(model, moving, state, position)
        return outputs

    def _compiled_step(
        self, model: Any, moving: Mapping[str, Tensor], state: Any, position: int
    ) -> dict[str, Tensor]:
        """Run a compiled step; if compiling fails, all later steps are plain."""
        compiled = self._compiled(model)
        if compiled is None:
            self._settle("plain", _UNCOMPILED)
            outputs: dict[str, Tensor] = model.step(**moving, state=state, position=position)
            return outputs
        start = time.perf_counter()
        outputs = compiled.step(moving, state, position)
        if compiled.failure:
            self._settle("plain", compiled.failure)
        elif not self._logged:
            seconds = time.perf_counter() - start
            self._settle("compiled", f"{self.reason}; compiling took {seconds:.1f} s")
        return outputs

    def _settle(self, mode: Mode, reason: str) -> None:
        """Set the mode and log it."""
        self.mode, self.reason, self._logged = mode, reason, True
        self.log(str(self))

    def _compiled(self, model: Any) -> _Compiled | None:
        """Return the compiled steps of a model; None if its graph has none."""
        steps: CompiledSteps | None = getattr(model, "_compiled_steps", None)
        if steps is None:
            return None
        return self._models.setdefault(id(model), _Compiled(model, steps))

    def _decide(
        self, model: nn.Module, moving: Mapping[str, Tensor], state: Any, position: int
    ) -> None:
        """Choose the mode if there is enough work; measure if no measurement is cached."""
        work = max(self.work, self.spent)
        if work < min(KNOWN, UNTRIED):
            return
        rows = next(iter(moving.values())).size(0)
        bucket = id(model), rows.bit_length()
        if (key := self._keys.get(bucket)) is None:
            key = self._keys[bucket] = _key(model, rows)
        if key not in self._measurements:
            self._measurements[key] = _cached(key)
        measured, when = self._measurements[key], "cached measurement"
        if measured is None and self.work >= UNTRIED:
            compiled = self._compiled(model)
            if compiled is None:
                self._settle("plain", _UNCOMPILED)
                return
            self.log("steps: compiling once, to measure whether it is faster")
            measured = _measure(model, compiled, moving, _copied(state), position)
            when = "measured now"
            if measured is None:
                self._settle("plain", compiled.failure)
                return
            from ..system.cache import store

            store(_file(key), asdict(measured))
        if measured is None:
            return
        if measured.gain < GAIN:
            self._settle("plain", f"{measured} ({when})")
        elif when == "measured now" or measured.pays(work):
            self._settle("compiled", f"{measured} ({when})")


_UNCOMPILED = "the model was not built by weft as it is now"


class _Compiled:
    """A model whose steps are compiled."""

    def __init__(self, model: Any, steps: CompiledSteps) -> None:
        """Take a model with compiled steps; the first step compiles them."""
        self._model, self._steps = model, steps
        self._graphs_before = -1

    @property
    def failure(self) -> str:
        """Reason why steps run uncompiled after all; empty if they do not."""
        return self._steps.failure

    def step(self, moving: Mapping[str, Tensor], state: Any, position: int) -> dict[str, Tensor]:
        """Run one step, compiled unless compiling has failed."""
        from .torch_compile import graphs_made, ready_compiler

        steps = self._steps
        if self._graphs_before < 0:
            ready_compiler()
            steps.backend, self._graphs_before = BACKEND, graphs_made()
        steps.active = True
        try:
            outputs: dict[str, Tensor] = self._model.step(**moving, state=state, position=position)
        finally:
            steps.active = False
        graphs = graphs_made() - self._graphs_before
        if graphs > GRAPHS * max(1, steps.templates):
            steps.failure = f"every new shape is compiled, {graphs} graphs so far"
        return outputs


def _measure(
    model: Any, compiled_model: _Compiled, moving: Mapping[str, Tensor], state: Any, position: int
) -> StepTimes | None:
    """Time plain and compiled steps alternately at one position; None if compiling fails."""

    def timed(step: Callable[[], object]) -> float:
        start = time.perf_counter()
        step()
        return time.perf_counter() - start

    def uncompiled() -> object:
        return model.step(**moving, state=state, position=position)

    def compiled() -> object:
        return compiled_model.step(moving, state, position)

    first = timed(compiled)
    if compiled_model.failure:
        return None
    times = [(timed(uncompiled), timed(compiled)) for _ in range(RUNS + 2)][2:]
    plain_seconds, compiled_seconds = (
        statistics.median(variant) for variant in zip(*times, strict=True)
    )
    compiling = max(0.0, first - compiled_seconds)
    return StepTimes(
        plain_seconds, compiled_seconds, compiling, next(iter(moving.values())).size(0)
    )


def _copied(state: Any) -> Any:
    """Return a copy of a decoding state for trial steps; the fixed part is shared."""
    if isinstance(state, State):
        appended, carried = (
            {name: tensor.clone() for name, tensor in part.items()}
            for part in (state.appended, state.carried)
        )
        return State(appended, carried, state.fixed)
    if isinstance(state, Mapping):
        return {name: _copied(part) for name, part in state.items()}
    if isinstance(state, list | tuple):
        return [_copied(part) for part in state]
    return state


def _key(model: nn.Module, rows: int) -> str:
    """Return a cache key of everything that a measurement depends on; rows by power of two."""
    parameter = next(model.parameters())
    half = torch.is_autocast_enabled(parameter.device.type)
    from .autotune import machine_key

    machine = machine_key(parameter.device, half=half)
    return f"{program_of(model).fingerprint[:16]}-{machine}-{rows.bit_length()}"


def _file(key: str) -> str:
    """Return the cache file of a measurement."""
    return f"steps/{key}.json"


def _cached(key: str) -> StepTimes | None:
    """Return a cached measurement, or None if there is no valid one."""
    from ..system.cache import stored

    try:
        measured = StepTimes(**stored(_file(key)))
        valid = (
            min(float(measured.uncompiled), float(measured.compiled)) > 0
            and float(measured.compiling) >= 0
        )
    except (TypeError, ValueError):
        return None
    return measured if valid else None
