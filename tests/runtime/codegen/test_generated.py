"""Random specs: every spec that passes the checker can be built and has the declared types.

Specs are valid by construction: each node reads values of the types that its block
takes.  FakeTensors propagate the shapes through torch's own operators; every axis has
a different prime length.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.canonical import canonical, fingerprint
from weft.graphs.ir.graph import Graph
from weft.graphs.ir.value_type import ValueType, evaluate
from weft.runtime.codegen.build import build_empty
from weft.runtime.compile.torch_compile import compile_model
from weft.specs.load import loaded

pytestmark = pytest.mark.integration

Json = dict[str, Any]
PRIMES = ({"B": 2, "S": 13, "T": 11}, {"B": 3, "S": 19, "T": 17})
WIDTHS = (4, 8, 12)


class Author:
    """Writes one scope of a spec node by node and tracks the available values."""

    def __init__(self, draw: st.DrawFn, values: dict[str, tuple[str, int]]) -> None:
        """Start from inputs: name to (time axis, width); width 0 is a mask."""
        self.draw, self.values, self.nodes = draw, dict(values), {}
        self.read = set[str]()

    def pick(self, axis: str = "", width: int = -1) -> str | None:
        """Choose a value of activations, with the given axis and width if any."""
        fits = [
            name
            for name, (time, size) in self.values.items()
            if size and (not axis or time == axis) and width in (-1, size)
        ]
        return self.draw(st.sampled_from(fits)) if fits else None

    def add(self, record: Json, axis: str, width: int, port: str = "y") -> str:
        """Add a node whose output has an axis and a width."""
        name = f"n{len(self.nodes)}"
        self.nodes[name] = record
        self.read |= set(record["in"].values())
        self.values[f"{name}.{port}"] = (axis, width)
        return f"{name}.{port}"

    def block(self, width: int, *, causal: bool) -> Json:
        """Choose a block whose output width equals its input width."""
        heads = self.draw(st.sampled_from([1, 2, 4]))
        attention = {"heads": heads, "causal": causal, "bias": self.draw(st.booleans())}
        choices: list[Json] = [
            {"use": "feed_forward@1", "params": {"d_ff": self.draw(st.integers(1, 9))}},
            {"use": "gated_feed_forward@1", "params": {"d_ff": 5, "activation": "silu"}},
            {"use": "attention@1", "params": attention},
            {"use": "attention@1", "params": {**attention, "kv_heads": 1}},
            {"use": "layer_norm@1"},
            {"use": "rms_norm@1"},
            {"use": "dropout@1", "params": {"dropout": 0.25}},
            {"use": "linear@1", "params": {"d_out": width}},
        ]
        return self.draw(st.sampled_from(choices))

    def wrapped(self, width: int, *, causal: bool) -> Json:
        """Choose a block, sometimes inside a sub-layer."""
        inner = self.block(width, causal=causal)
        if not self.draw(st.booleans()):
            return inner
        params = {
            "order": self.draw(st.sampled_from(["pre", "post"])),
            "norm": self.draw(st.sampled_from(["layer_norm", "rms_norm"])),
        }
        return {"use": "sublayer@1", "params": params, "fill": {"f": inner}}

    def node(self, templates: dict[str, Json]) -> None:
        """Add one node of any kind."""
        value = self.pick()
        assert value is not None
        axis, width = self.values[value]
        kind = self.draw(st.sampled_from(["block", "widen", "cross", "prepend", "stack", "once"]))
        if kind == "widen":
            wide = self.draw(st.sampled_from(WIDTHS))
            self.add({"use": "linear@1", "params": {"d_out": wide}, "in": {"x": value}}, axis, wide)
        elif kind == "cross":
            memory = self.pick()
            wires = {"x": value, "memory": memory}
            attention = {"use": "attention@1", "params": {"heads": 2}, "in": wires}
            self.add(attention, axis, width)
        elif kind == "prepend" and "+" not in axis:
            self.add(
                {"use": "prepend@1", "params": {"count": 3}, "in": {"x": value}}, axis + "+3", width
            )
        elif kind in ("stack", "once") and "+" not in axis:
            self.template(templates, value, stack=kind == "stack")
        else:
            self.add({**self.wrapped(width, causal=False), "in": {"x": value}}, axis, width)

    def template(self, templates: dict[str, Json], value: str, *, stack: bool) -> None:
        """Write a template around a few nodes, and use it."""
        axis, width = self.values[value]
        inner = Author(self.draw, {"x": (axis, width)})
        for _ in range(self.draw(st.integers(1, 2))):
            last = list(inner.values)[-1]
            inner.add({**inner.wrapped(width, causal=False), "in": {"x": last}}, axis, width)
        last = list(inner.values)[-1]
        name = f"t{len(templates)}"
        templates[name] = {
            "inputs": {"x": f"f[B {axis} {width}]"},
            "outputs": {"x": last, "each": last},
            "nodes": inner.nodes,
        }
        if not stack:
            node = self.add({"use": name, "in": {"x": value}}, axis, width, "x")
            self.values[node.replace(".x", ".each")] = (axis, width)
            return
        keys: Json = {"repeat": self.draw(st.integers(1, 4)), "block": name, "carry": ["x"]}
        keys |= self.draw(st.sampled_from([{}, {"share": True}, {"instead": {"0": name}}]))
        if self.draw(st.booleans()):
            keys["collect"] = ["each"]
        self.add({**keys, "in": {"x": value}}, axis, width, "x")


@st.composite
def specs(draw: st.DrawFn) -> Json:
    """Draw a valid spec."""
    widths = [draw(st.sampled_from(WIDTHS)) for _ in "ab"]
    author = Author(draw, {"a": ("S", widths[0]), "b": ("T", widths[1])})
    templates: dict[str, Json] = {}
    for _ in range(draw(st.integers(1, 6))):
        author.node(templates)
    inputs = {"a": f"f[B S {widths[0]}]", "b": f"f[B T {widths[1]}]"}
    # Values without a reader are outputs, so that no node is unused.
    ends = [value for value in author.values if value not in author.read]
    for name, node in author.nodes.items():
        ends += [f"{name}.{port}" for port in node.get("collect", ())]
    return {
        "format": 1,
        "name": "generated",
        "axes": {"B": "batch", "S": "time", "T": "time"},
        "inputs": inputs,
        "outputs": {f"o{i}": value for i, value in enumerate(ends)},
        "blocks": templates,
        "nodes": author.nodes,
    }


def graph_of(spec: Json) -> Graph:
    """Return a spec's graph; the error contains all findings."""
    return check(loaded(spec).form, registry())


def shape(type_: ValueType, sizes: dict[str, int]) -> tuple[int, ...]:
    """Return the shape of a value of a type."""
    return tuple(evaluate(axis, sizes) for axis in type_.axes)


SLOW = settings(
    max_examples=min(60, settings.default.max_examples // 5),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""Number of examples: ten, and sixty in the thorough profile."""


@SLOW
@given(specs())
def test_declared_types_are_torchs(spec: Json) -> None:
    """Every output of the built module has the shape of its type, for two sets of primes."""
    graph = graph_of(spec)
    model: Any = build_empty(graph).eval()
    with FakeTensorMode(allow_non_fake_inputs=True):
        for sizes in PRIMES:
            given_ = {n: torch.empty(shape(t, sizes)) for n, t in graph.inputs.items()}
            found = {port: tuple(value.shape) for port, value in model(**given_).items()}
            assert found == {port: shape(type_, sizes) for port, type_ in graph.outputs.items()}


@SLOW
@given(specs())
def test_the_module_has_the_weights_of_the_graph(spec: Json) -> None:
    """The graph counts the weights before torch creates them."""
    graph = graph_of(spec)
    state = build_empty(graph, device="meta").state_dict()

    assert {name: tuple(value.shape) for name, value in state.items()} == graph.weights()


@SLOW
@given(specs())
def test_the_full_form_is_the_same_graph(spec: Json) -> None:
    """Expanding twice changes neither the form nor the fingerprint."""
    graph = graph_of(spec)
    again = graph_of(canonical(graph))

    assert canonical(again) == canonical(graph)
    assert fingerprint(again) == fingerprint(graph)


@pytest.mark.slow
@pytest.mark.filterwarnings(r"ignore:.*torch\.jit\.:DeprecationWarning")
@pytest.mark.filterwarnings(r"ignore:The \.grad attribute:UserWarning")
@settings(SLOW, max_examples=8)
@given(specs())
def test_a_generated_graph_compiles(spec: Json) -> None:
    """The compiled model gives the same outputs as the uncompiled one."""
    torch._dynamo.reset()
    graph = graph_of(spec)
    eager: Any = build_empty(graph).eval()
    with torch.no_grad():
        for weight in eager.parameters():
            weight.normal_(std=0.3)
    model: Any = build_empty(graph).eval()
    model.load_state_dict(eager.state_dict())
    compile_model(model, "layers")
    given_ = {n: torch.randn(shape(t, PRIMES[0])) for n, t in graph.inputs.items()}

    torch.testing.assert_close(model(**given_), eager(**given_), rtol=1e-4, atol=1e-4)
