"""Compilation of decoding steps, chosen by a cached measurement.

The step of each repeated template is compiled with dynamic lengths and rows; layers of one
template share one graph.  Compiling takes seconds, so `auto` compiles only if there is enough
work to make up for it, after timing a plain and a compiled step on the current state.  If
compiling fails, steps run uncompiled and the reason is logged.

Not here: compiled training (`torch_compile.py`), prepacked weights (`prepack.py`).
"""

from __future__ import annotations

import copy
import statistics
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...blocks.kernels.decode_state import State
from ..codegen.generated import program_of

CompileChoice = Literal["auto", "on", "off"]
"""`off` never compiles, `on` compiles at once, `auto` compiles if a measurement shows a gain."""

BACKEND = "inductor"
"""Backend of torch.compile."""
UNTRIED = 150.0
"""Seconds of steps after which compiling for a measurement is worthwhile: about ten times the
compile time, and the same amount of work is expected to follow."""
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
class Measured:
    """Measured times of a step."""

    plain: float
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
        return self.plain / self.compiled

    def pays(self, work: float) -> bool:
        """Return whether compiling pays off for `work` seconds of uncompiled steps."""
        return self.gain >= GAIN and work * (1 - 1 / self.gain) > self.compiling

    def __str__(self) -> str:
        """Return a one-line summary."""
        return (
            f"{self.compiled * 1e3:.1f} ms compiled, {self.plain * 1e3:.1f} ms not, for "
            f"{self.rows} rows; compiling takes {self.compiling:.0f} s"
        )


def _silent(_: str) -> None:
    """Discard a log line."""


class Steps:
    """Runs the decoding steps of one model, plain or compiled."""

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
        self.mode: Literal["undecided", "plain", "compiled"] = (
            "undecided" if choice == "auto" else "compiled" if choice == "on" else "plain"
        )
        self.reason = "requested"
        self._log = log or _silent
        self._logged = False
        self._measurements: dict[str, Measured | None] = {}
        self._models: weakref.WeakKeyDictionary[nn.Module, _Compiled] = weakref.WeakKeyDictionary()

    def __str__(self) -> str:
        """Return a one-line summary of the choice."""
        return f"steps: {self.mode}, {self.reason}"

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
            model: a model with a `step`, possibly prepacked.
            moving: inputs at the next positions of every row.
            state: decoding state from `begin`.
            position: first of these positions.
            last: whether the buffers have no capacity for another position; full buffers would
                need their own graph.
        """
        outputs: dict[str, Tensor]
        single = next(iter(moving.values())).size(1) == 1
        if self.mode == "plain" or position < FIRST or last or not single:
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
        self, model: nn.Module, moving: Mapping[str, Tensor], state: Any, position: int
    ) -> dict[str, Tensor]:
        """Run a compiled step; if compiling fails, all later steps are plain."""
        start = time.perf_counter()
        compiled = self._compiled(model)
        outputs = compiled.step(moving, state, position)
        if compiled.failure:
            self._settle("plain", compiled.failure)
        elif not self._logged:
            seconds = time.perf_counter() - start
            self._settle("compiled", f"{self.reason}; compiling took {seconds:.1f} s")
        return outputs

    def _settle(self, mode: Literal["plain", "compiled"], reason: str) -> None:
        """Set the mode and log it."""
        self.mode, self.reason, self._logged = mode, reason, True
        self._log(str(self))

    def _compiled(self, model: nn.Module) -> _Compiled:
        if model not in self._models:
            self._models[model] = _Compiled(model)
        return self._models[model]

    def _decide(
        self, model: nn.Module, moving: Mapping[str, Tensor], state: Any, position: int
    ) -> None:
        """Choose the mode if there is enough work; measure if no measurement is cached."""
        work = max(self.work, self.spent)
        if work < min(KNOWN, UNTRIED):
            return
        rows = next(iter(moving.values())).size(0)
        key = _key(model, rows)
        if key not in self._measurements:
            self._measurements[key] = _cached(key)
        measured, when = self._measurements[key], "cached measurement"
        if measured is None and work >= UNTRIED:
            self._log("steps: compiling once, to measure whether it is faster")
            compiled = self._compiled(model)
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


_CHOSEN: weakref.WeakKeyDictionary[nn.Module, Steps] = weakref.WeakKeyDictionary()


def use_steps(model: nn.Module, steps: Steps) -> None:
    """Use `steps` for a model from now on, in this process."""
    _CHOSEN[model] = steps


def steps_of(model: nn.Module) -> Steps:
    """Return the `Steps` of a model; plain steps if `use_steps` was not called for it."""
    return _CHOSEN.get(model) or Steps()


class _Compiled:
    """A model with compiled steps of its repeated templates, or of itself if it has none."""

    def __init__(self, model: nn.Module) -> None:
        """Make a model that shares everything with `model`; the first step compiles it."""
        from .torch_compile import ready_compiler

        ready_compiler()
        self.failure = ""
        """Reason why steps run uncompiled after all; empty if they do not."""
        names = program_of(model).templates
        stepped = {
            type(one)
            for one in model.modules()
            if type(one).__name__ in names and hasattr(one, "step")
        }
        kinds: set[Any] = stepped or {type(model)}
        self._functions: dict[Any, Callable[..., Any]] = {
            kind: torch.compile(kind.step, dynamic=True, backend=BACKEND) for kind in kinds
        }
        # Imported with the first compiled model, because the import takes seconds.
        from torch._dynamo.exc import TorchDynamoException
        from torch._inductor.exc import InductorError

        self._errors = (TorchDynamoException, InductorError)
        from .torch_compile import graphs_made

        self._graphs_before = graphs_made()
        self._model: Any = self._relinked(model, {})

    def _relinked(self, module: nn.Module, known: dict[int, nn.Module]) -> nn.Module:
        """Return a copy of a module that shares everything except its steps, which are compiled."""
        if id(module) in known:
            return known[id(module)]
        copied = known[id(module)] = copy.copy(module)
        if type(module) in self._functions:
            copied.__dict__["step"] = _Step(self, module)
            return copied
        inner = {
            name: None if child is None else self._relinked(child, known)
            for name, child in module._modules.items()  # noqa: SLF001 - all of them, in order
        }
        copied.__dict__ |= {"_modules": inner, "_compiled_call_impl": None}
        return copied

    def step(self, moving: Mapping[str, Tensor], state: Any, position: int) -> dict[str, Tensor]:
        """Run one step, compiled unless compiling has failed."""
        outputs: dict[str, Tensor] = self._model.step(**moving, state=state, position=position)
        from .torch_compile import graphs_made

        graphs = graphs_made() - self._graphs_before
        if graphs > GRAPHS * len(self._functions):
            self.failure = f"every new shape is compiled, {graphs} graphs so far"
        return outputs

    def call(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the step of one layer, uncompiled if compiling fails (the state stays as is)."""
        kind: Any = type(layer)
        if not self.failure:
            try:
                return self._functions[kind](layer, *args, **kwargs)
            except self._errors as error:
                first = str(error).strip().partition("\n")[0]
                self.failure = f"compiling failed: {type(error).__name__}: {first[:200]}"
        return kind.step(layer, *args, **kwargs)


class _Step:
    """The compiled step of one layer."""

    def __init__(self, model: _Compiled, layer: nn.Module) -> None:
        # A strong reference to the layer would keep the weak keys of `Steps` alive.
        self._model, self._layer = model, weakref.ref(layer)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        layer = self._layer()
        assert layer is not None  # noqa: S101 - the layer belongs to the running model
        return self._model.call(layer, args, kwargs)


def _measure(
    model: Any, compiled_model: _Compiled, moving: Mapping[str, Tensor], state: Any, position: int
) -> Measured | None:
    """Time plain and compiled steps alternately at one position; None if compiling fails."""
    rows = next(iter(moving.values()))

    def timed(step: Callable[[], object]) -> float:
        start = time.perf_counter()
        step()
        if rows.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    def plain() -> object:
        return model.step(**moving, state=state, position=position)

    def compiled() -> object:
        return compiled_model.step(moving, state, position)

    first = timed(compiled)
    if compiled_model.failure:
        return None
    times = [(timed(plain), timed(compiled)) for _ in range(RUNS + 2)][2:]
    plain_seconds, compiled_seconds = (
        statistics.median(variant) for variant in zip(*times, strict=True)
    )
    compiling = max(0.0, first - compiled_seconds)
    return Measured(plain_seconds, compiled_seconds, compiling, rows.size(0))


def _copied(state: Any) -> Any:
    """Return a copy of a decoding state for trial steps; the fixed part is shared."""
    if isinstance(state, State):
        appended, carried = (
            {name: one.clone() for name, one in part.items()}
            for part in (state.appended, state.carried)
        )
        return State(appended, carried, state.fixed)
    if isinstance(state, Mapping):
        return {name: _copied(one) for name, one in state.items()}
    if isinstance(state, list | tuple):
        return [_copied(one) for one in state]
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


def _cached(key: str) -> Measured | None:
    """Return a cached measurement, or None if there is no valid one."""
    from ..system.cache import stored

    try:
        found = Measured(**stored(_file(key)))
        valid = min(float(found.plain), float(found.compiled)) > 0 and float(found.compiling) >= 0
    except (TypeError, ValueError):
        return None
    return found if valid else None
