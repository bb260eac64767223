"""Templates in slots and in block choices: the same model as written out by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from weft.blocks.kernels.decode_state import Capacity
from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse, check
from weft.graphs.cost.flops import default_sizes, flops
from weft.graphs.draw.diagram import diagram
from weft.graphs.draw.outline import render
from weft.graphs.ir.canonical import canonical
from weft.graphs.ir.graph import Graph
from weft.runtime.codegen.build import build
from weft.specs.load import loaded

READ = {"use": "attention@1", "params": {"heads": 2, "causal": True}}
FEED = {"use": "feed_forward@1", "params": {"d_ff": 16}}
TWO = {
    "inputs": {"x": "f[B T 8]", "memory": "f[B S 8]?", "mask": "mask[B S]?"},
    "outputs": {"y": "feed.y"},
    "nodes": {
        "read": {**READ, "in": {"x": "x"}},
        "cross": {
            "use": "attention@1",
            "params": {"heads": 2},
            "in": {"x": "read.y", "memory": "memory", "mask": "mask"},
        },
        "feed": {**FEED, "in": {"x": "cross.y"}},
    },
}
OWN = {
    "inputs": {"x": "f[B T 8]"},
    "outputs": {"y": "feed.y"},
    "nodes": {"feed": {"use": "feed_forward@1", "params": {"d_ff": "=wide"}, "in": {"x": "x"}}},
}


def graph_of(node: dict[str, Any], blocks: dict[str, Any], **keys: Any) -> Graph:
    """Return a graph of one sub-layer that reads a memory, twice in a row."""
    layer = {
        "inputs": {"x": "f[B T 8]", "memory": "f[B S 8]", "mask": "mask[B S]"},
        "outputs": {"x": "outer.y"},
        "nodes": {
            "outer": {**node, "in": {"x": "x", "memory": "memory", "mask": "mask"}},
        },
    }
    value = {
        "format": 1,
        "name": "slots",
        "axes": {"B": "batch", "T": "time", "S": "time"},
        "inputs": {"x": "f[B T 8]", "memory": "f[B S 8]", "mask": "mask[B S]"},
        "outputs": {"y": "stack.x"},
        "blocks": {"layer": layer, **blocks},
        "nodes": {
            "stack": {
                "repeat": 2,
                "block": "layer",
                "carry": ["x"],
                "in": {"x": "x", "memory": "memory", "mask": "mask"},
            }
        },
        "step": {"axis": "T"},
        **keys,
    }
    return check(loaded(value).form, registry())


FILLED = {"use": "sublayer@1", "params": {"order": "pre"}, "fill": {"f": {"use": "two"}}}
CHOSEN = {"use": "sublayer@1", "params": {"order": "pre"}, "fill": {"f": {"use": "=inner"}}}
INNER = {"params": {"inner": {"use": "two"}}}


@pytest.fixture(params=["named", "chosen"])
def graph(request: pytest.FixtureRequest) -> Graph:
    """Return the graph with the template named in the slot, then chosen by a param."""
    if request.param == "named":
        return graph_of(FILLED, {"two": TWO})
    return graph_of(CHOSEN, {"two": TWO}, **INNER)


@pytest.fixture
def inputs() -> dict[str, torch.Tensor]:
    """Return two targets of five positions and two sources of three, one with padding."""
    generator = torch.Generator().manual_seed(0)
    return {
        "x": torch.randn(2, 5, 8, generator=generator),
        "memory": torch.randn(2, 3, 8, generator=generator),
        "mask": torch.tensor([[True, True, True], [True, True, False]]),
    }


def test_a_template_in_a_slot_computes_its_blocks(
    graph: Graph, inputs: dict[str, torch.Tensor]
) -> None:
    """The outputs equal those of the same blocks called one after the other."""
    model: Any = build(graph).eval()
    x = inputs["x"]
    for layer in model.stack:
        inner = layer.outer.f
        y = inner.read(layer.outer.norm(x))
        y = inner.cross(y, memory=inputs["memory"], mask=inputs["mask"])
        x = x + inner.feed(y)

    torch.testing.assert_close(model(**inputs)["y"], x, rtol=0, atol=0)


def test_stepping_includes_the_template(graph: Graph, inputs: dict[str, torch.Tensor]) -> None:
    """The template holds the states of its blocks; the memory is read once."""
    model: Any = build(graph).eval()
    parallel = model(**inputs)["y"]
    fixed = {name: inputs[name] for name in ("memory", "mask")}
    state = model.begin(Capacity(2, 1, 5, torch.float32, torch.device("cpu")), **fixed)
    steps = [
        model.step(x=inputs["x"][:, t : t + 1], state=state, position=t)["y"] for t in range(5)
    ]

    torch.testing.assert_close(torch.cat(steps, 1), parallel, rtol=1e-5, atol=1e-6)


def test_it_is_counted_listed_and_drawn(graph: Graph) -> None:
    """Weights have paths through the slot; the tree and the drawing show its contents."""
    state = {name: tuple(value.shape) for name, value in build(graph).state_dict().items()}

    assert state == graph.weights()
    assert "stack.1.outer.f.feed.inner.weight" in state
    assert graph.parameters() == sum(torch.Size(shape).numel() for shape in state.values())
    text = render(graph)
    assert [word in text for word in ("two", "read", "cross", "feed")] == [True] * 4
    assert "two" in diagram(graph).source
    assert flops(graph, default_sizes(graph)) > 0


def test_its_full_form_is_the_same_graph(graph: Graph) -> None:
    """A choice is resolved; a template keeps its name."""
    full = canonical(graph)

    assert full["blocks"]["layer"]["nodes"]["outer"]["fill"] == {"f": {"use": "two"}}
    assert canonical(check(loaded(full).form, registry())) == full


def test_a_template_may_be_chosen_for_a_node(inputs: dict[str, torch.Tensor]) -> None:
    """`=inner` at a node uses that template."""
    two = {**TWO, "outputs": {"y": "feed.y"}}
    chosen = graph_of({"use": "=inner"}, {"two": two}, **INNER)
    named = graph_of({"use": "two"}, {"two": two})

    assert canonical(chosen) == canonical(named)
    torch.testing.assert_close(build(chosen).eval()(**inputs), build(named).eval()(**inputs))


def test_an_override_of_a_choice_does_not_make_a_template_unused() -> None:
    """A template that the spec itself chooses counts as used and is still checked."""
    spec = loaded(
        {
            "format": 1,
            "name": "choice",
            "params": {"inner": {"use": "own"}, "wide": 16},
            "axes": {"B": "batch", "T": "time"},
            "inputs": {"x": "f[B T 8]"},
            "outputs": {"y": "outer.y"},
            "blocks": {"own": OWN},
            "nodes": {
                "outer": {"use": "sublayer@1", "in": {"x": "x"}, "fill": {"f": {"use": "=inner"}}}
            },
        }
    ).form
    other = {"inner": {"use": "feed_forward@1", "params": {"d_ff": 4}}}

    assert "outer.f.feed.inner.weight" in check(spec, registry()).weights()
    assert check(spec, registry(), other).weights()["outer.f.inner.weight"] == (4, 8)
    wrong = spec.blocks["own"].model_copy(update={"outputs": {"y": "fed.y"}})
    _, findings = analyse(spec.model_copy(update={"blocks": {"own": wrong}}), registry(), other)
    assert ("N02", "/blocks/own/outputs/y") in [(f.code, f.at) for f in findings]
