"""Code generation: a graph becomes readable straight-line source without injected code."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from weft.blocks.kernels.decode_state import Capacity
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.graph import Graph
from weft.runtime.codegen.build import build
from weft.runtime.codegen.module import class_name, lower
from weft.specs.load import load, loaded

Spec = dict[str, Any]
HOSTILE = (
    '"""\nimport os\nos.abort()\n"""',
    "'''; import os #",
    '\\"""; x = 1 #',
    'ends with a quote"',
    "ends with a backslash\\",
    "{imports}{0}{doc!r}%s%(name)s",
    "\x00\r\n\x0b\x0c\x1c\x85\u2028\u2029\ud800",
)


def classes(source: str) -> dict[str, ast.ClassDef]:
    """Return the classes of a generated module by name."""
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}


def without_docstrings(source: str) -> str:
    """Return the code of a module without docstrings, for comparison."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            node.body = node.body[1:]
    return ast.unparse(tree)


def two_stacks(second: str) -> Spec:
    """Return a spec that repeats one template, then the same template or an equal one."""
    layer = {
        "inputs": {"x": "f[B T 4]"},
        "outputs": {"x": "map.y"},
        "nodes": {"map": {"use": "linear@1", "params": {"d_out": 4}, "in": {"x": "x"}}},
    }
    stack = {"repeat": 2, "carry": ["x"]}
    return {
        "format": 1,
        "name": "stacks",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 4]"},
        "outputs": {"x": "upper.x"},
        "blocks": {"layer": layer} | ({} if second == "layer" else {second: layer}),
        "nodes": {
            "lower": {**stack, "block": "layer", "in": {"x": "x"}},
            "upper": {**stack, "block": second, "in": {"x": "lower.x"}},
        },
        "step": {"axis": "T"},
    }


def test_each_template_is_one_class(graph: Callable[..., Graph]) -> None:
    """There are three classes: the encoder layer, the decoder layer and the model."""
    program = lower(graph())

    assert list(classes(program.source)) == ["EncoderLayer", "DecoderLayer", "TransformerTiny"]
    assert program.templates == ("EncoderLayer", "DecoderLayer")
    assert program.root == "TransformerTiny"


def test_two_uses_of_one_template_are_one_class(graph: Callable[..., Graph]) -> None:
    """Identical source is the same class, so torch compiles it once."""
    program = lower(graph(two_stacks("layer")))

    assert program.templates == ("Layer",)
    assert list(classes(program.source)) == ["Layer", "Stacks"]


def test_two_templates_are_two_classes_though_names_collide(graph: Callable[..., Graph]) -> None:
    """`layer` and `Layer` are different names in a spec but the same Python class name."""
    program = lower(graph(two_stacks("Layer")))

    assert program.templates == ("Layer", "Layer2")


def test_a_template_with_two_shapes_is_two_classes(graph: Callable[..., Graph]) -> None:
    """A template is typed at each use: different widths give different source."""
    spec = two_stacks("layer")
    spec["blocks"]["layer"]["inputs"]["x"] = "f[b T d]"
    spec["blocks"]["layer"]["nodes"]["map"] = {"use": "layer_norm@1", "in": {"x": "x"}}
    spec["nodes"]["wider"] = {"use": "linear@1", "params": {"d_out": 6}, "in": {"x": "lower.x"}}
    spec["nodes"]["upper"]["in"]["x"] = "wider.y"

    program = lower(graph(spec))

    assert program.templates == ("Layer", "Layer2")


def test_sixty_layers_are_the_classes_of_six(graph: Callable[..., Graph]) -> None:
    """Depth is a number in one `range`; the rest of the source does not depend on it."""
    six, sixty = (lower(graph(layers=layers)) for layers in (6, 60))

    assert six.source.replace("range(6)", "range(60)") == sixty.source
    assert six.templates == sixty.templates
    assert six.fingerprint != sixty.fingerprint


@pytest.mark.parametrize("method", ["forward", "begin", "step"])
def test_methods_are_straight_line_code(graph: Callable[..., Graph], method: str) -> None:
    """Methods have assignments, loops over stacks of layers and one return, but no branches."""
    bodies = [
        node.body
        for class_ in classes(lower(graph()).source).values()
        for node in class_.body
        if isinstance(node, ast.FunctionDef) and node.name == method
    ]

    assert len(bodies) == (3 if method == "forward" else 2)  # an encoder layer has no step
    for body in bodies:
        *lines, last = body
        if lines and isinstance(lines[0], ast.Expr):  # the docstring of the root's forward
            lines = lines[1:]
        assert isinstance(last, ast.Return)
        for line in lines:
            if isinstance(line, ast.For):
                stacks = [line.iter, *getattr(line.iter, "args", [])]
                assert any(ast.unparse(stack).startswith("self.") for stack in stacks)
                assert all(isinstance(inner, ast.Assign) for inner in line.body)
            else:
                assert isinstance(line, ast.Assign)
        assert not [n for line in body for n in ast.walk(line) if isinstance(n, ast.If | ast.While)]


def test_arguments_are_literals(graph: Callable[..., Graph]) -> None:
    """Constructors take numbers, strings and modules; the source computes no arguments."""
    tree = ast.parse(lower(graph()).source)

    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        for keyword in call.keywords:
            allowed = ast.Constant | ast.Call | ast.Name | ast.Subscript
            assert isinstance(keyword.value, allowed), ast.unparse(call)


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_a_doc_stays_text(graph: Callable[..., Graph], hostile: str) -> None:
    """Docs are untrusted input: they do not change the code, wherever they occur."""
    plain, spec = two_stacks("layer"), two_stacks("layer")
    spec["doc"] = spec["blocks"]["layer"]["doc"] = spec["nodes"]["lower"]["doc"] = hostile
    spec["blocks"]["layer"]["nodes"]["map"]["doc"] = hostile

    program = lower(graph(spec))

    assert without_docstrings(program.source) == without_docstrings(lower(graph(plain)).source)
    assert program.source.replace("\n", "").isprintable()


@pytest.mark.integration
@given(st.text())
@example('"""')
@example("\\")
@settings(max_examples=60)
def test_no_doc_changes_the_code(doc: str) -> None:
    """For any doc, the statements are the same and the docstring contains the words."""
    spec = two_stacks("layer")
    expected = without_docstrings(lower(check(loaded(spec).form, registry())).source)

    program = lower(check(loaded({**spec, "doc": doc}).form, registry()))

    assert without_docstrings(program.source) == expected
    words = "".join(c for c in doc if c.isalnum())
    assert words in "".join(c for c in program.source if c.isalnum())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("encoder_layer", "EncoderLayer"),
        ("transformer-base", "TransformerBase"),
        ("a.b", "AB"),
        ("9-lives", "Model9Lives"),
    ],
)
def test_a_specs_name_becomes_a_class_name(name: str, expected: str) -> None:
    """Words are joined, and the name does not start with a digit."""
    assert class_name(name) == expected


@pytest.mark.parametrize("name", ["PROGRAM", "linear", "Linear", "nn", "module"])
def test_a_spec_may_have_a_name_that_python_uses(graph: Callable[..., Graph], name: str) -> None:
    """Names that Python, torch or a block also uses are allowed."""
    spec = two_stacks("layer")
    spec["name"] = name

    model = build(graph(spec))

    assert len(model.state_dict()) == 8


@pytest.mark.parametrize(
    "name",
    ["Linear", "range", "layer", "layer_state", "nn", "state", "capacity", "position", "super"],
)
def test_a_node_may_have_a_name_that_the_source_uses(
    graph: Callable[..., Graph], name: str
) -> None:
    """Local variables do not shadow names used in `forward`, `begin` and `step`."""
    spec = two_stacks("layer")
    node = {"use": "linear@1", "params": {"d_out": 4}, "in": {"x": "x"}}
    spec["nodes"] |= {name: node}
    spec["nodes"]["lower"]["in"]["x"] = f"{name}.y"
    model = build(graph(spec)).eval()
    x = torch.randn(2, 1, 4)

    state = model.begin(Capacity(2, 1, 1, torch.float32, torch.device("cpu")))

    torch.testing.assert_close(model.step(x=x, state=state, position=0), model(x=x))
    assert f"{name}.weight" in model.state_dict()


def test_reading_a_prompt_skips_nodes_that_only_serve_the_outputs() -> None:
    """`read_prompt` ends with the last node that has a state and omits the head."""
    graph = check(load("transformer-tiny").form, registry(), {"vocab": 11})
    step, read = lower(graph).source.split("    def step(")[-1].split("    def read_prompt(")

    assert "self.head(" in step
    assert "self.decoder" in read
    assert "self.head(" not in read


def test_the_source_of_a_small_model_is_readable(
    graph: Callable[..., Graph],
) -> None:
    """The complete source of a stack of linear maps."""
    program = lower(graph(two_stacks("layer")))

    assert (
        program.source
        == '''"""stacks: a model.

Generated by weft from a spec; state_dict keys follow the spec's paths.
"""

from __future__ import annotations

from torch import Tensor, nn
from weft.blocks.residual.sublayer_module import Linear


class Layer(nn.Module):
    """layer: x f[B T 4] -> x f[B T 4]."""

    def __init__(self) -> None:
        super().__init__()
        self.map = Linear(d_in=4, d_out=4, bias=True)

    def forward(self, *, x: Tensor) -> Tensor:
        map = self.map(x=x)
        return map

    def begin(self, capacity):
        return {
        }

    def step(self, *, x, state, position):
        map = self.map(x=x)
        return map


class Stacks(nn.Module):
    """stacks: x f[B T 4] -> x f[B T 4]."""

    def __init__(self) -> None:
        super().__init__()
        self.lower = nn.ModuleList([Layer() for _ in range(2)])
        self.upper = nn.ModuleList([Layer() for _ in range(2)])

    def forward(self, *, x: Tensor) -> dict[str, Tensor]:
        """Return the outputs by name.

        Args:
            x: f[B T 4], float: vectors.

        Returns:
            x: f[B T 4], float: vectors.
        """
        lower = x
        for layer in self.lower:
            lower = layer(x=lower)
        upper = lower
        for layer in self.upper:
            upper = layer(x=upper)
        return {"x": upper}

    def begin(self, capacity):
        return {
            "lower": [layer.begin(capacity) for layer in self.lower],
            "upper": [layer.begin(capacity) for layer in self.upper],
        }

    def step(self, *, x, state, position):
        lower = x
        for layer, layer_state in zip(self.lower, state["lower"], strict=True):
            lower = layer.step(x=lower, state=layer_state, position=position)
        upper = lower
        for layer, layer_state in zip(self.upper, state["upper"], strict=True):
            upper = layer.step(x=upper, state=layer_state, position=position)
        return {"x": upper}

    def read_prompt(self, *, x, state, position):
        lower = x
        for layer, layer_state in zip(self.lower, state["lower"], strict=True):
            lower = layer.step(x=lower, state=layer_state, position=position)
        upper = lower
        for layer, layer_state in zip(self.upper, state["upper"], strict=True):
            upper = layer.step(x=upper, state=layer_state, position=position)
'''
    )
