"""All forms of repeats: building, stepping, drawing and sharing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.blocks.kernels.decode_state import Capacity
from weft.blocks.registry import registry
from weft.extensions.interop.export.flat import flat_graph
from weft.graphs.checker.check import check
from weft.graphs.draw.diagram import diagram
from weft.graphs.draw.outline import render
from weft.graphs.ir.canonical import canonical, fingerprint
from weft.graphs.ir.graph import Graph
from weft.runtime.codegen.build import build
from weft.runtime.codegen.module import lower
from weft.runtime.compile.torch_compile import compile_model
from weft.specs.load import loaded

LAYER: dict[str, Any] = {
    "inputs": {"x": "f[B T 8]"},
    "outputs": {"x": "read.y", "each": "read.y", "width": "map.y"},
    "nodes": {
        "read": {
            "use": "sublayer@1",
            "in": {"x": "x"},
            "params": {"order": "pre"},
            "fill": {"f": {"use": "attention@1", "params": {"heads": 2, "causal": True}}},
        },
        "map": {"use": "linear@1", "in": {"x": "read.y"}, "params": {"d_out": 3}},
    },
}
WIDE = {
    **LAYER,
    "nodes": {
        **LAYER["nodes"],
        "read": {
            **LAYER["nodes"]["read"],
            "fill": {"f": {"use": "feed_forward@1", "params": {"d_ff": 32}}},
        },
    },
}


def graph_of(outputs: tuple[str, ...] = ("stack.x",), **keys: Any) -> Graph:
    """Return a stack of four layers over T."""
    value = {
        "format": 1,
        "name": "stack",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]"},
        "outputs": {value.replace(".", "_"): value for value in outputs},
        "blocks": {"layer": LAYER} | ({"wide": WIDE} if "instead" in keys else {}),
        "nodes": {
            "stack": {"repeat": 4, "block": "layer", "carry": ["x"], "in": {"x": "x"}, **keys}
        },
        "step": {"axis": "T"},
    }
    return check(loaded(value).form, registry())


FORMS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "plain": (("stack.x",), {}),
    "shared": (("stack.x",), {"share": True}),
    "another copy": (("stack.x",), {"instead": {"2": "wide"}}),
    "two others": (("stack.x",), {"instead": {"0": "wide", "3": "wide"}}),
    "collected": (("stack.x", "stack.each"), {"collect": ["each"]}),
    "two collected": (("stack.each", "stack.width"), {"collect": ["width", "each"]}),
    "only collected": (("stack.width",), {"carry": [], "collect": ["width"]}),
    "shared and collected": (("stack.width",), {"share": True, "collect": ["width"]}),
    "others collected": (("stack.width",), {"instead": {"1": "wide"}, "collect": ["width"]}),
}


@pytest.fixture(params=FORMS, ids=lambda form: form.replace(" ", "-"))
def graph(request: pytest.FixtureRequest) -> Graph:
    """Return each form of a repeat in turn."""
    outputs, keys = FORMS[request.param]
    return graph_of(outputs, **keys)


@pytest.fixture
def x() -> Tensor:
    """Return two sequences of five vectors."""
    return torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(3))


def by_hand(graph: Graph, model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """Run the copies one after the other, as defined by `carry` and `collect`."""
    [node] = graph.root.nodes
    stack: Any = model.stack
    each, width = [], []
    for index in range(4):
        layer = stack if node.share else stack[index]
        entered = layer.read(x)
        each.append(entered)
        width.append(layer.map(entered))
        x = entered if node.carry else x
    values = {"stack.x": x, "stack.each": torch.stack(each), "stack.width": torch.stack(width)}
    return {port: values[value] for port, value in graph.root.outputs.items()}


def test_the_module_implements_carry_and_collect(graph: Graph, x: Tensor) -> None:
    """Carried values are passed on; collected values are stacked along a new first axis."""
    model = build(graph).eval()
    expected = by_hand(graph, model, x)

    for port, value in model(x=x).items():
        torch.testing.assert_close(value, expected[port], rtol=0, atol=0)
        sizes = [{"B": 2, "T": 5}.get(str(axis), axis) for axis in graph.outputs[port].axes]
        assert list(value.shape) == sizes


def test_stepping_equals_the_parallel_forward(graph: Graph, x: Tensor) -> None:
    """One position at a time; each copy has its own state, even with shared weights."""
    model = build(graph).eval()
    parallel = model(x=x)
    state: Any = model.begin(Capacity(2, 1, 5, x.dtype, x.device))
    steps = [model.step(x=x[:, t : t + 1], state=state, position=t) for t in range(5)]

    for port, expected in parallel.items():
        time = graph.outputs[port].axes.index("T")
        given = torch.cat([step[port] for step in steps], time)
        torch.testing.assert_close(given, expected, rtol=1e-5, atol=1e-6)


def test_weights_are_where_the_graph_says(graph: Graph) -> None:
    """Shared weights occur once, without a number; a copy keeps its number."""
    state = {name: tuple(value.shape) for name, value in build(graph).state_dict().items()}

    assert state == graph.weights()
    assert graph.parameters() == sum(torch.Size(shape).numel() for shape in state.values())
    [node] = graph.root.nodes
    assert any(name.startswith("stack.3.") for name in state) is not node.share


def test_the_full_form_is_the_same_graph(graph: Graph) -> None:
    """Expanding an expanded spec changes nothing."""
    again = check(loaded(canonical(graph)).form, registry())

    assert canonical(again) == canonical(graph)
    assert fingerprint(again) == fingerprint(graph)


def test_it_can_be_drawn_and_listed(graph: Graph) -> None:
    """Every form of the drawing shows the keywords, and the tree sums to the total."""
    for form in ("folded", "typed", "expanded"):
        source = diagram(graph, form).source  # type: ignore[arg-type]
        [node] = graph.root.nodes
        assert ("stacked" in source) is bool(node.collect)
        assert ("shared weights" in source) is node.share
    assert f"{graph.parameters():,}" in render(graph)


def test_copies_that_are_another_template_are_named_by_their_number() -> None:
    """The tree shows which copies use which template."""
    text = render(graph_of(instead={"2": "wide"}))

    assert "* × 3" in text
    assert "\n    2 " in text or "\n  2 " in text


def test_the_flat_graph_contains_every_copy(graph: Graph) -> None:
    """It has a vertex for each placed block, and one for the collected value."""
    flat, [node] = flat_graph(graph), graph.root.nodes
    kinds = [kind for _, kind in flat.nodes(data="kind")]

    assert kinds.count("block") == 8
    assert kinds.count("stack") == len(node.collect)
    for port in node.collect:
        assert flat.in_degree(f"stack:{port}") == 4


def test_a_class_is_written_once_for_equal_copies() -> None:
    """Two templates give two classes in one model, with the copies in order."""
    source = lower(graph_of(instead={"2": "wide"})).source

    assert source.count("class ") == 3
    assert "range(2)), *(Wide() for _ in range(1)), *(Layer()" in " ".join(source.split())


@pytest.mark.slow
@pytest.mark.filterwarnings(r"ignore:.*torch\.jit\.:DeprecationWarning")
@pytest.mark.filterwarnings(r"ignore:The \.grad attribute:UserWarning")
def test_one_graph_serves_shared_copies(x: Tensor) -> None:
    """A module called four times is one compiled graph with the same outputs."""
    graph = graph_of(share=True)
    x.requires_grad_()  # as after an embedding; the second copy's input does too
    eager, model = build(graph), build(graph)
    report = compile_model(model, "layers")

    torch.testing.assert_close(model(x=x)["stack_x"], eager(x=x)["stack_x"])
    assert report.found == report.expected == 1


def test_a_repeat_with_all_copies_replaced_equals_a_repeat_of_the_replacement() -> None:
    """The result does not depend on how the copies are written."""
    others = {str(index): "wide" for index in range(4)}
    graph = graph_of(instead=others)

    assert canonical(graph)["nodes"]["stack"]["block"] == "wide"
    assert canonical(check(loaded(canonical(graph)).form, registry())) == canonical(graph)
    assert "instead" not in canonical(graph)["nodes"]["stack"]


def test_a_replacement_need_not_read_every_wire() -> None:
    """It receives the wires of all copies and may ignore some."""
    layer = {**LAYER, "inputs": {"x": "f[B T 8]", "more": "f[B T 8]"}}
    layer["nodes"] = {
        **LAYER["nodes"],
        "again": {"use": "linear@1", "in": {"x": "more"}, "params": {"d_out": 8}},
    }
    layer["outputs"] = {**LAYER["outputs"], "again": "again.y"}
    alone = {**LAYER, "inputs": layer["inputs"], "outputs": {**LAYER["outputs"], "again": "x"}}
    node = {
        "repeat": 3,
        "block": "layer",
        "carry": ["x"],
        "collect": ["again"],
        "instead": {"1": "alone"},
    }
    value = {
        "format": 1,
        "name": "stack",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]", "more": "f[B T 8]"},
        "outputs": {"x": "stack.x", "again": "stack.again"},
        "blocks": {"layer": layer, "alone": alone},
        "nodes": {"stack": {**node, "in": {"x": "x", "more": "more"}}},
    }

    assert check(loaded(value).form, registry()).root.nodes[0].instead.keys() == {1}
