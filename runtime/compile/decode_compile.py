"""Steps: whether a decoder's steps run as they are or compiled, by a measurement that is kept.

What is compiled is the step of each repeated template, with lengths and rows that may
change; layers of one template share one graph.  That takes seconds, so `auto` does it only
for work that is long enough to win them back, after having timed a step either way on the
state that is at hand.  Where it cannot be done, steps run as they are, and it is said.

Not here: compiled training (`compile.py`), and matrices laid out for steps (`pack.py`).
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
from ..codegen.build import program_of
from ..system.cache import store, stored
from .autotune import machine_key
from .torch_compile import graphs_made, ready_compiler

CompileChoice = Literal["auto", "on", "off"]
"""`off` never compiles, `on` does at once, `auto` when a measurement says that it pays."""

BACKEND = "inductor"
"""What makes code of graphs; torch knows others."""
UNTRIED = 150.0
"""Seconds of steps after which it is worth to compile for a measurement: about ten times
what compiling takes, and as much work again is expected."""
KNOWN = 10.0
"""Seconds of steps after which a measurement of before is looked for."""
GAIN = 1.05
"""How many times as fast compiled steps must be."""
RUNS = 7
"""Runs of each way after two to warm up; the median counts."""
FIRST = 2
"""Positions before this one are never compiled: 0 and 1 would each be a graph of their own."""
GRAPHS = 6
"""Graphs of one template at most: of one sentence or several, of one beam or several, ..."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a step takes."""

    plain: float
    """Seconds, as it is."""
    compiled: float
    """Seconds, compiled."""
    compiling: float
    """Seconds that compiling took."""
    rows: int

    @property
    def gain(self) -> float:
        """How many times as fast a compiled step is."""
        return self.plain / self.compiled

    def pays(self, work: float) -> bool:
        """Say whether compiling wins its time back in so many seconds of plain steps."""
        return self.gain >= GAIN and work * (1 - 1 / self.gain) > self.compiling

    def __str__(self) -> str:
        """Say it in a line."""
        return (
            f"{self.compiled * 1e3:.1f} ms compiled, {self.plain * 1e3:.1f} ms not, for "
            f"{self.rows} rows; compiling takes {self.compiling:.0f} s"
        )


def _silent(_: str) -> None:
    """Say nothing."""


class Steps:
    """How the steps of one model run; it is asked for each."""

    def __init__(
        self,
        choice: CompileChoice = "off",
        *,
        work: float = 0.0,
        log: Callable[[str], None] | None = None,
    ) -> None:
        """Begin with plain steps.

        Args:
            choice: what is asked for.
            work: seconds of steps that are to come, as far as is known; as many as there
                were are expected besides.
            log: hears in one line what was chosen and why.
        """
        self.choice, self.work, self.spent = choice, work, 0.0
        self.mode: Literal["undecided", "plain", "compiled"] = (
            "undecided" if choice == "auto" else "compiled" if choice == "on" else "plain"
        )
        self.reason = "asked for"
        self._say = log or _silent
        self._told = False
        self._known: dict[str, Measured | None] = {}
        self._made: weakref.WeakKeyDictionary[nn.Module, _Compiled] = weakref.WeakKeyDictionary()

    def __str__(self) -> str:
        """Say in one line what runs."""
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
        """Return what a model's `step` returns.

        Args:
            model: with a `step`, perhaps packed.
            moving: its inputs at the next positions of every row.
            state: what its `begin` returned.
            position: where the first of them stands.
            last: whether there is room for none after it; buffers that are full would
                be a graph of their own.
        """
        outputs: dict[str, Tensor]
        one = next(iter(moving.values())).size(1) == 1
        if self.mode == "plain" or position < FIRST or last or not one:
            outputs = model.step(**moving, state=state, position=position)
            return outputs
        if self.mode == "compiled":
            return self._stepped(model, moving, state, position)
        start = time.perf_counter()
        outputs = model.step(**moving, state=state, position=position)
        self.spent += time.perf_counter() - start
        self._decide(model, moving, state, position)
        return outputs

    def _stepped(
        self, model: nn.Module, moving: Mapping[str, Tensor], state: Any, position: int
    ) -> dict[str, Tensor]:
        """Take a compiled step; from the first on that fails all are plain."""
        start = time.perf_counter()
        made = self._compiled(model)
        outputs = made.step(moving, state, position)
        if made.failure:
            self._settle("plain", made.failure)
        elif not self._told:
            self._settle("compiled", f"{self.reason}; {time.perf_counter() - start:.1f} s for it")
        return outputs

    def _settle(self, mode: Literal["plain", "compiled"], reason: str) -> None:
        """Choose, and say it."""
        self.mode, self.reason, self._told = mode, reason, True
        self._say(str(self))

    def _compiled(self, model: nn.Module) -> _Compiled:
        if model not in self._made:
            self._made[model] = _Compiled(model)
        return self._made[model]

    def _decide(
        self, model: nn.Module, moving: Mapping[str, Tensor], state: Any, position: int
    ) -> None:
        """Choose when there is enough work for it; measure where that was never done."""
        work = max(self.work, self.spent)
        if work < min(KNOWN, UNTRIED):
            return
        rows = next(iter(moving.values())).size(0)
        key = _key(model, rows)
        if key not in self._known:
            self._known[key] = _known(key)
        known, when = self._known[key], "measured before"
        if known is None and work >= UNTRIED:
            self._say("steps: compiling once, to measure whether that pays")
            made = self._compiled(model)
            known, when = _measure(model, made, moving, _copied(state), position), "measured now"
            if known is None:
                self._settle("plain", made.failure)
                return
            store(_file(key), asdict(known))
        if known is None:
            return
        if known.gain < GAIN:
            self._settle("plain", f"{known} ({when})")
        elif when == "measured now" or known.pays(work):
            self._settle("compiled", f"{known} ({when})")


_CHOSEN: weakref.WeakKeyDictionary[nn.Module, Steps] = weakref.WeakKeyDictionary()


def use_steps(model: nn.Module, steps: Steps) -> None:
    """Let the steps of a model run so from now on, in this process."""
    _CHOSEN[model] = steps


def steps_of(model: nn.Module) -> Steps:
    """Return how the steps of a model run: as they are unless it was said otherwise."""
    return _CHOSEN.get(model) or Steps()


class _Compiled:
    """A model whose repeated templates, or which itself where there are none, step compiled."""

    def __init__(self, model: nn.Module) -> None:
        """Make a model that shares all with another; nothing is compiled before the first step."""
        ready_compiler()
        self.failure = ""
        """Why steps are plain after all; empty when they are not."""
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
        # Loaded with the first model that is compiled: it takes seconds.
        from torch._dynamo.exc import TorchDynamoException  # noqa: PLC0415
        from torch._inductor.exc import InductorError  # noqa: PLC0415

        self._errors = (TorchDynamoException, InductorError)
        self._before = graphs_made()
        self._model: Any = self._relinked(model, {})

    def _relinked(self, module: nn.Module, known: dict[int, nn.Module]) -> nn.Module:
        """Return a module that shares all with another but compiled steps."""
        if id(module) in known:
            return known[id(module)]
        made = known[id(module)] = copy.copy(module)
        if type(module) in self._functions:
            made.__dict__["step"] = _Step(self, module)
            return made
        inner = {
            name: None if one is None else self._relinked(one, known)
            for name, one in module._modules.items()  # noqa: SLF001 - all of them, in order
        }
        made.__dict__ |= {"_modules": inner, "_compiled_call_impl": None}
        return made

    def step(self, moving: Mapping[str, Tensor], state: Any, position: int) -> dict[str, Tensor]:
        """Take a step, compiled as far as that can be."""
        outputs: dict[str, Tensor] = self._model.step(**moving, state=state, position=position)
        made = graphs_made() - self._before
        if made > GRAPHS * len(self._functions):
            self.failure = f"every shape is compiled anew, {made} graphs up to now"
        return outputs

    def call(self, layer: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Step one layer; plainly where compiling it has failed, which changes no state."""
        kind: Any = type(layer)
        if not self.failure:
            try:
                return self._functions[kind](layer, *given, **named)
            except self._errors as error:
                first = str(error).strip().partition("\n")[0]
                self.failure = f"compiling failed: {type(error).__name__}: {first[:200]}"
        return kind.step(layer, *given, **named)


class _Step:
    """The step of one layer."""

    def __init__(self, whole: _Compiled, layer: nn.Module) -> None:
        # Who keeps models by weak keys must not be kept by them.
        self._whole, self._layer = whole, weakref.ref(layer)

    def __call__(self, *given: Any, **named: Any) -> Any:
        layer = self._layer()
        assert layer is not None  # noqa: S101 - it is part of the model that steps
        return self._whole.call(layer, given, named)


def _measure(
    model: Any, made: _Compiled, moving: Mapping[str, Tensor], state: Any, position: int
) -> Measured | None:
    """Time a step in turn either way, again and again at one position; None where it fails."""
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
        return made.step(moving, state, position)

    first = timed(compiled)
    if made.failure:
        return None
    times = [(timed(plain), timed(compiled)) for _ in range(RUNS + 2)][2:]
    each = [statistics.median(one) for one in zip(*times, strict=True)]
    return Measured(each[0], each[1], max(0.0, first - each[1]), rows.size(0))


def _copied(state: Any) -> Any:
    """Return a state on which steps may be tried; what no step changes is shared."""
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
    """Return a name for all that a measurement depends on; of rows their order of magnitude."""
    parameter = next(model.parameters())
    half = torch.is_autocast_enabled(parameter.device.type)
    machine = machine_key(parameter.device, half=half)
    return f"{program_of(model).fingerprint[:16]}-{machine}-{rows.bit_length()}"


def _file(key: str) -> str:
    """Return under which name a measurement is kept."""
    return f"steps/{key}.json"


def _known(key: str) -> Measured | None:
    """Return a kept measurement, or None where there is none that can be used."""
    try:
        found = Measured(**stored(_file(key)))
        sound = min(float(found.plain), float(found.compiled)) > 0 and float(found.compiling) >= 0
    except (TypeError, ValueError):
        return None
    return found if sound else None
