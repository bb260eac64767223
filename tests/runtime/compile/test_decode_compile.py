"""Tests of compiled decoding steps: equal outputs, few graphs, choice by measurement."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from weft.blocks.kernels.prepacked import can_pack
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.runtime.codegen.build import build
from weft.runtime.compile import decode_compile as module
from weft.runtime.compile import torch_compile
from weft.runtime.compile.decode_compile import Steps, StepTimes
from weft.runtime.compile.decoder import steps_of, use_steps
from weft.runtime.decode.decode import Request, SpecialTokens, decode_ids
from weft.runtime.decode.settings import BeamSearch
from weft.specs.load import load

SPECIAL_TOKENS = SpecialTokens(3, 1, 0)
SMALL: dict[str, dict[str, Any]] = {
    "transformer-tiny": {"vocab": 30, "d_model": 8, "heads": 2, "d_ff": 12, "layers": 2},
    "gnmt-small": {"d_model": 16, "layers": 2, "vocab": 30},
    "gru-attention": {"d_model": 16, "d_hidden": 12, "vocab": 30},
    "conv-s2s": {"d_embedding": 12, "d_model": 16, "layers": 2, "vocab": 30},
}

pytestmark = pytest.mark.usefixtures("own_compiler")


@pytest.fixture(autouse=True)
def _traced_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trace without generating code, and cache measurements in a temporary folder."""
    monkeypatch.setattr(module, "BACKEND", "eager")
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))


def made(name: str = "transformer-tiny") -> nn.Module:
    """Return a small model with well-separated logits."""
    model = build(check(load(name).form, registry(), SMALL[name])).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn(weight.shape, generator=generator))
    return model


def decoded(model: nn.Module, *counts: int, half: bool = False) -> list[Any]:
    """Return the best outputs and their scores for batches of the given sizes."""
    generator = torch.Generator().manual_seed(5)
    search = BeamSearch(beam=2, max_extra=2, min_length=5)
    best = []
    for count in counts:
        lengths = torch.randint(2, 9, (count,), generator=generator).tolist()
        ids = [torch.randint(4, 30, (n,), generator=generator).tolist() for n in lengths]
        found = decode_ids(
            [model], [Request(one) for one in ids], SPECIAL_TOKENS, search, half=half
        )
        best += [first for first, *_ in found]
    return best


def assert_same(found: list[Any], expected: list[Any]) -> None:
    """Tokens are equal, and scores up to rounding."""
    assert [one.tokens for one in found] == [one.tokens for one in expected]
    scores = [[one.score for one in each] for each in (found, expected)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


def used(model: nn.Module, *given: Any, **more: Any) -> tuple[Steps, list[str]]:
    """Set the steps of a model; return them, and the list of their log lines."""
    messages: list[str] = []
    chosen = Steps(*given, log=messages.append, **more)
    use_steps(model, chosen)
    return chosen, messages


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Replace the slow compiler by a list of its calls."""
    calls: list[tuple[str, int]] = []

    def note(function: Any, **settings: Any) -> Any:
        assert settings == {"dynamic": True, "backend": module.BACKEND}

        def call(*given: Any, position: int, **named: Any) -> Any:
            calls.append((function.__qualname__, position))
            return function(*given, position=position, **named)

        return call

    monkeypatch.setattr(torch, "compile", note)
    return calls


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("transformer-tiny", (3,)),
        *(pytest.param(name, (3, 5, 2, 1, 4), marks=pytest.mark.slow) for name in SMALL),
    ],
)
def test_compiled_steps_equal_eager_steps(name: str, counts: tuple[int, ...]) -> None:
    """Batches of other sizes and lengths, also shrinking ones, need few graphs."""
    model = made(name)
    plain = decoded(model, *counts)
    before = torch_compile.graphs_made()

    steps, messages = used(model, "on")

    assert_same(decoded(model, *counts), plain)
    assert steps.mode == "compiled"
    assert [line.partition(";")[0] for line in messages] == ["steps: compiled, requested"]
    assert 0 < torch_compile.graphs_made() - before <= module.GRAPHS


@pytest.mark.parametrize(
    ("name", "calls"),
    [("transformer-tiny", ["DecoderLayer.step"] * 2), ("gru-attention", ["GruAttention.step"])],
)
def test_repeated_layers_are_compiled_or_else_the_model(
    name: str, calls: list[str], asked: list[tuple[str, int]]
) -> None:
    """Neither the first two positions nor the last one are compiled."""
    model = made(name)
    used(model, "on")
    search = BeamSearch(beam=2, max_extra=0, max_length=6, min_length=6)

    decode_ids([model], [Request([5, 6, 7, 8, 9, 4])] * 2, SPECIAL_TOKENS, search)

    assert asked == [(call, position) for position in (2, 3, 4) for call in calls]
    assert not [one for one in model.modules() if "step" in vars(one)]


@pytest.mark.slow
def test_prepacked_products_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prepacked products are calls in the graph and cause no graph break."""
    graphs: list[torch.fx.GraphModule] = []

    def noted(made: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        graphs.append(made)
        return made.forward

    monkeypatch.setattr(module, "BACKEND", noted)
    model = made()
    plain = decoded(model, 3)
    used(model, "on")

    assert_same(decoded(model, 3), plain)
    calls = [str(node.target) for one in graphs for node in one.graph.nodes]
    # Query, key, value and out; query and out of cross-attention; two of the feed-forward.
    expected = 8 * len(graphs) if can_pack(torch.float32) else 0
    assert sum("packed_linear" in call for call in calls) == expected


def test_steps_are_eager_by_default() -> None:
    """Models without a choice, or with `off`, compile nothing."""
    model = made()
    before = torch_compile.graphs_made()
    decoded(model, 2)

    steps, messages = used(model, "off", work=1e9)
    decoded(model, 2)

    assert torch_compile.graphs_made() == before
    assert (steps.mode, messages) == ("plain", [])
    assert steps_of(made()).mode == "plain"


@pytest.mark.integration
@pytest.mark.parametrize("name", ["transformer-tiny", "gnmt-small"])
@pytest.mark.parametrize("choice", ["on", "auto"])
def test_steps_are_eager_if_compilation_fails(
    name: str, choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure is logged once, with its reason, and no step runs twice."""

    def failing(*_: Any, **__: Any) -> Any:
        def fails(*_: Any, **__: Any) -> None:
            from torch._dynamo.exc import TorchDynamoException  # noqa: PLC0415 - slow to load

            msg = "no C++ compiler\nand more"
            raise TorchDynamoException(msg)

        return fails

    monkeypatch.setattr(torch, "compile", failing)
    model = made(name)
    plain = decoded(model, 3, 2)

    steps, messages = used(model, choice, work=1e9)

    assert_same(decoded(model, 3, 2), plain)
    assert steps.mode == "plain"
    assert "compiling failed" in messages[-1]
    assert messages[-1].endswith("no C++ compiler")
    assert len(messages) == 1 + (choice == "auto")


def test_too_many_graphs_stop_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilation stops if there are more graphs than shapes can explain."""

    def counted(function: Any, **_: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            counted_up.append(1)
            return function(*given, **named)

        return call

    counted_up: list[int] = []
    monkeypatch.setattr(torch, "compile", counted)
    monkeypatch.setattr(torch_compile, "graphs_made", lambda: len(counted_up))
    model = made()
    plain = decoded(model, 3, 2)

    steps, messages = used(model, "on")

    assert_same(decoded(model, 3, 2), plain)
    assert steps.mode == "plain"
    # One template of two layers may have at most six graphs.
    assert "every new shape is compiled, 8 graphs" in messages[-1]


@pytest.mark.parametrize("name", ["transformer-tiny", "gnmt-small"])
@pytest.mark.usefixtures("asked")
def test_a_measurement_leaves_no_trace(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured steps in the middle of an output run on a copy of its state."""
    monkeypatch.setattr(module, "RUNS", 1)
    model = made(name)
    plain = decoded(model, 3)

    steps, messages = used(model, "auto", work=1e9)

    assert_same(decoded(model, 3), plain)
    assert steps.mode != "undecided"
    assert "measured now" in messages[-1]


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(("compiled", "mode"), [(0.5, "compiled"), (0.99, "plain"), (2, "plain")])
def test_auto_follows_the_measurement_and_keeps_it(
    compiled: float, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process reads the measurement for a similar number of rows."""
    measured: list[int] = []

    def measure(*_: Any) -> StepTimes:
        measured.append(1)
        return StepTimes(1.0, compiled, 10.0, 6)

    monkeypatch.setattr(module, "_measure", measure)
    model = made()

    first, _ = used(model, "auto", work=1e9)
    decoded(model, 3)
    second, messages = used(model, "auto", work=1e9)
    decoded(model, 3)

    assert first.mode == second.mode == mode
    assert measured == [1]
    assert "cached measurement" in messages[-1]
    [file] = (tmp_path / "steps").iterdir()
    assert json.loads(file.read_text())["compiled"] == compiled

    file.write_text('{"plain": 1, "compiled": "x"}')
    used(model, "auto", work=1e9)
    decoded(model, 3)
    assert measured == [1, 1]


@pytest.mark.usefixtures("asked")
def test_auto_waits_until_there_is_work_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short inputs are never delayed; a cached measurement needs less work than a new one."""
    monkeypatch.setattr(module, "_measure", lambda *_: StepTimes(1.0, 0.8, 30.0, 6))
    model = made()
    for work, modes in ((9.0, {"undecided"}), (149.0, {"undecided"}), (151.0, {"compiled"})):
        steps, _ = used(model, "auto", work=work)
        decoded(model, 3)
        assert {steps.mode} == modes

    steps, _ = used(model, "auto", work=149.0)  # compiling takes 30 s, saved within 150 s
    decoded(model, 3)
    assert steps.mode == "undecided"


@pytest.mark.usefixtures("asked")
def test_only_expected_work_is_measured_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that has run for long reads a measurement, but compiles nothing to make one."""
    monkeypatch.setattr(module, "_measure", lambda *_: StepTimes(1.0, 0.8, 30.0, 6))
    model = made()
    steps, messages = used(model, "auto")
    steps.spent = 1e6
    decoded(model, 3)
    assert (steps.mode, messages) == ("undecided", [])

    used(model, "auto", work=1e9)
    decoded(model, 3)
    steps, messages = used(model, "auto")
    steps.spent = 1e6
    decoded(model, 3)
    assert steps.mode == "compiled"
    assert "cached measurement" in messages[0]


def test_worthwhile_compilation_by_hand() -> None:
    """A fifth of 100 s is 20 s; a speedup of 4 % does not count."""
    assert StepTimes(1.0, 0.8, 19.0, 4).pays(100.0)
    assert not StepTimes(1.0, 0.8, 21.0, 4).pays(100.0)
    assert not StepTimes(1.0, 0.97, 0.0, 4).pays(1e9)
    assert StepTimes(1.0, 0.8, 19.0, 4).pays(float("inf"))


@pytest.mark.integration
@pytest.mark.usefixtures("asked")
def test_a_model_with_compiled_steps_can_be_freed() -> None:
    """Compiled steps do not keep a model alive, also if it is compiled as one."""
    model = made("gru-attention")
    used(model, "on")
    decoded(model, 2)
    seen = weakref.ref(model)

    del model
    gc.collect()

    assert seen() is None


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("half", [False, True])
def test_inductor_steps_equal_eager_steps(
    name: str, half: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a C++ compiler; in bfloat16 outputs may differ."""
    monkeypatch.setattr(module, "BACKEND", "inductor")
    model = made(name)
    plain = decoded(model, 3, 5, 1, half=half)

    steps, messages = used(model, "on")
    found = decoded(model, 3, 5, 1, half=half)

    assert steps.mode == "compiled", messages
    if not half:
        assert_same(found, plain)


@pytest.mark.slow
def test_without_a_compiler_of_cpp(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure of the compiler is logged, and decoding continues."""
    from torch._inductor import config  # noqa: PLC0415 - takes seconds to import

    monkeypatch.setattr(module, "BACKEND", "inductor")
    model = made()
    plain = decoded(model, 3)

    with config.patch({"cpp.cxx": ("/no/such/compiler",)}):  # monkeypatch hides it on undo
        steps, messages = used(model, "on")
        found = decoded(model, 3)

    assert_same(found, plain)
    assert steps.mode == "plain"
    assert "compiling failed" in messages[-1]
