"""Tests of torch.compile by template: the choice, and the number of graphs."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.graphs.ir.graph import Graph
from weft.graphs.passes.unpad import unpad
from weft.runtime.codegen.build import build
from weft.runtime.compile import torch_compile as compiling
from weft.runtime.compile.torch_compile import compile_model
from weft.specs.findings import InputError

GraphOf = Callable[..., Graph]
Inputs = Callable[..., dict[str, Tensor]]

pytestmark = pytest.mark.usefixtures("own_compiler")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Replace the slow compiler by a list of its arguments."""
    calls: list[dict[str, Any]] = []

    def note(call: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
        calls.append(settings)
        return call

    monkeypatch.setattr(torch, "compile", note)
    return calls


def compiled(model: nn.Module) -> list[str]:
    """Return the paths of the modules that would be compiled."""
    return [path for path, m in model.named_modules() if m._compiled_call_impl is not None]


def test_eager_compiles_nothing(graph: GraphOf) -> None:
    """Mode `eager` changes nothing, and the report says so."""
    model = build(graph())

    report = compile_model(model, "eager")

    assert str(report) == "eager: requested"
    assert compiled(model) == []
    assert (report.expected, report.compiled) == (0, 0)


def test_auto_on_the_cpu_is_eager(graph: GraphOf) -> None:
    """On the CPU `auto` stays eager, because compiled training was slower in measurements."""
    model = build(graph())

    report = compile_model(model)

    assert str(report) == "eager: auto on the CPU, where compiled training is slower"
    assert compiled(model) == []


def test_layers_compiles_each_copy_of_each_template(
    graph: GraphOf, asked: list[dict[str, Any]]
) -> None:
    """Four copies, two templates; state dict keys do not change, and sizes may vary."""
    model = build(graph())
    keys = list(model.state_dict())

    report = compile_model(model, "layers")

    assert compiled(model) == ["encoder.0", "encoder.1", "decoder.0", "decoder.1"]
    assert (report.mode, report.compiled, report.expected, report.found) == ("layers", 4, 2, 0)
    assert report.templates == ("EncoderLayer", "DecoderLayer")
    assert asked == 4 * [{"dynamic": True}]
    assert list(model.state_dict()) == keys


@pytest.mark.parametrize("own", [None, "/elsewhere"])
def test_compiled_code_is_cached_between_processes(
    graph: GraphOf,
    asked: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    own: str | None,
) -> None:
    """Compiled code is cached in weft's cache folder unless the user set another one."""
    monkeypatch.setenv("WEFT_CACHE", "/cache")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", own or "")
    if own is None:
        monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")

    compile_model(build(graph()), "layers")

    assert asked
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == (own or "/cache/inductor")


@pytest.mark.parametrize(
    ("seconds", "mode"), [([0.2, 0.1], "layers"), ([0.1, 0.2], "eager"), ([0.1, 0.1], "eager")]
)
@pytest.mark.usefixtures("asked")
def test_auto_measures_and_uses_the_faster_mode(
    graph: GraphOf, monkeypatch: pytest.MonkeyPatch, seconds: list[float], mode: str
) -> None:
    """With a workload to measure, eager runs first and is kept if compiling gains nothing."""
    model = build(graph())
    times = iter(seconds)
    monkeypatch.setattr(compiling, "_median", lambda _: next(times))

    report = compile_model(model, measure=lambda: None)

    assert report.mode == mode
    first, second = (f"{s * 1e3:.1f} ms" for s in seconds)
    assert f"auto measured {second} compiled, {first} eager" in str(report)
    assert len(compiled(model)) == (4 if mode == "layers" else 0)


def test_a_model_that_repeats_nothing_stays_eager(graph: GraphOf) -> None:
    """Without a template nothing is compiled, and the report says so."""
    spec: dict[str, Any] = {
        "format": 1,
        "name": "map",
        "axes": {"B": "batch"},
        "inputs": {"x": "f[B 4]"},
        "outputs": {"y": "map.y"},
        "nodes": {"map": {"use": "linear@1", "params": {"d_out": 3}, "in": {"x": "x"}}},
    }

    report = compile_model(build(graph(spec)), "layers")

    assert str(report) == "eager: no template is repeated"


def test_a_model_without_weights_stays_eager(graph: GraphOf) -> None:
    """Its device cannot be read from a weight."""
    spec = {
        "format": 1,
        "name": "bare",
        "axes": {"B": "batch"},
        "inputs": {"x": "f[B 4]"},
        "outputs": {"y": "node.y"},
        "nodes": {"node": {"use": "dropout@1", "params": {"dropout": 0.5}, "in": {"x": "x"}}},
    }

    assert compile_model(build(graph(spec))).mode == "eager"


def test_a_foreign_module_is_refused() -> None:
    """Only built models have templates."""
    with pytest.raises(InputError, match="was not built from a spec"):
        compile_model(nn.Linear(1, 1))


@pytest.mark.slow
def test_compiled_training_is_eager_training(graph: GraphOf, inputs: Inputs) -> None:
    """Logits and gradients are the same in float32, with one graph per template."""
    eager, fast = build(graph()), build(graph())
    report = compile_model(fast, "layers")
    batch = inputs()

    results = []
    for model in (eager, fast):
        logits = model(**batch)["logits"]
        logits.logsumexp(-1).mean().backward()
        results.append((logits, {name: w.grad for name, w in model.named_parameters()}))

    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
    assert report.found == report.expected == 2


@pytest.mark.slow
def test_compiled_unpadded_rows_equal_eager_padded_rows(graph: GraphOf, inputs: Inputs) -> None:
    """Inputs of any shape need one graph per template."""
    eager, fast = build(graph()), build(unpad(graph()))
    report = compile_model(fast, "layers")

    for seed in range(6):
        batch = inputs(rows=2 + seed, source=5 + 3 * seed, target=20 - 2 * seed, seed=seed)
        found = fast(**batch)["logits"]
        kept = found.ne(0).any(-1, keepdim=True)
        expected = eager(**batch)["logits"] * kept
        for model, logits in ((fast, found), (eager, expected)):
            model.zero_grad()
            logits.square().mean().backward()
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        for ours, theirs in zip(fast.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-5)

    assert report.found == report.expected == 2


@pytest.mark.slow
def test_twenty_shapes_need_no_recompile(graph: GraphOf, inputs: Inputs) -> None:
    """Rows and lengths vary in every batch; equal sizes by chance cause no new graph."""
    model, eager = build(graph()).eval(), build(graph()).eval()
    report = compile_model(model, "layers")
    shapes = [(3, 6, 5), (4, 4, 4), (2, 9, 9), (8, 8, 3), (7, 3, 7), (9, 5, 6), (5, 2, 2)]
    shapes += [(2 + i, 14 - i, 3 + i % 5) for i in range(13)]

    with torch.no_grad():
        for seed, (rows, source, target) in enumerate(shapes):
            batch = inputs(rows, source, target, seed)
            found, expected = model(**batch)["logits"], eager(**batch)["logits"]
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)

    assert len(set(shapes)) == 20
    assert report.found == report.expected == 2


@pytest.mark.slow
def test_an_axis_of_one_takes_a_graph_of_its_own(
    graph: GraphOf, inputs: Inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch specializes on a size of 1, so a single row or a single token is compiled again.

    Each axis has size 1 or more: at most 4 graphs for the encoder's B and S, and 8 for the
    decoder's B, S and T, which is the maximum that torch keeps per class.  Only the number of
    traces matters, so the traced graphs run without code generation.
    """
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    model = build(graph()).eval()
    report = compile_model(model, "layers")
    found = []

    with torch.no_grad():
        for shape in [(3, 6, 5), (1, 6, 5), (1, 4, 7), (4, 4, 1), (2, 5, 1), (1, 1, 1)]:
            model(**inputs(*shape))
            found.append(report.found)

    assert found == [2, 4, 4, 5, 5, 7]


@pytest.mark.slow
def test_six_layers_need_as_many_graphs_as_two(graph: GraphOf, inputs: Inputs) -> None:
    """Copies share a class, and so its compiled graph."""
    found = {}
    for layers in (2, 6):
        torch.compiler.reset()
        model = build(graph(layers=layers)).eval()
        report = compile_model(model, "layers")
        with torch.no_grad():
            model(**inputs())
        found[layers] = report.found

    assert found == {2: 2, 6: 2}
