"""Generated code with names that Python, torch and the code itself use."""

from __future__ import annotations

import copy
import keyword
import pickle
from typing import Any

import pytest
import torch
import weft
from torch import Tensor, nn
from weft.blocks.registry import registry
from weft.extensions.interop.export.onnx_graph import with_free_names
from weft.graphs.checker.check import check
from weft.graphs.checker.declarations import ATTRIBUTES
from weft.graphs.ir.python_names import ARGUMENTS, MODULE_WORDS, OWN_WORDS
from weft.runtime.codegen.build import build
from weft.specs.load import loaded

WORDS = sorted(
    {*keyword.kwlist, *MODULE_WORDS, *OWN_WORDS, *ARGUMENTS, "Tensor"}
    | {"eval", "print", "str", "list", "dict", "super", "property", "isinstance", "len"}
    | {"initialize", "attention_weights", "elementwise"}
)
"""Names of nodes, of which each reads the one before."""
PLAIN = [f"node_{index}" for index in range(len(WORDS))]


def model(words: list[str]) -> Any:
    """Return a model with a linear map, a residual path or a repeat for each word, in turn."""
    nodes: dict[str, Any] = {}
    value = "x"
    linear: dict[str, Any] = {"use": "linear@1", "params": {"d_out": 2}}
    for index, word in enumerate(words):
        kinds: list[tuple[dict[str, Any], dict[str, str], str]] = [
            (linear, {"x": value}, "y"),
            ({"use": "sublayer@1", "fill": {"f": {"use": "if"}}}, {"x": value, "state": "x"}, "y"),
            ({"repeat": 2, "block": "none", "carry": ["self"]}, {"self": value}, "self"),
        ]
        node, wires, port = kinds[index % 3]
        nodes[word], value = {**node, "in": wires}, f"{word}.{port}"
    attention = {"use": "attention@1", "params": {"heads": 1, "causal": True}, "in": {"x": "state"}}
    added = {
        "use": "elementwise@1",
        "in": {"x": "x", "z": "to.y"},
        "params": {"y": "x + z"},
    }
    templates = {
        "if": {
            "inputs": {"x": "f[B T 2]", "state": "f[B T 2]"},
            "outputs": {"y": "position.y"},
            "nodes": {"to": attention, "position": added},
        },
        "none": {
            "inputs": {"self": "f[B T 2]"},
            "outputs": {"self": "layer.y"},
            "nodes": {"layer": {**linear, "in": {"x": "self"}}},
        },
    }
    spec = {
        "format": 1,
        "name": "true",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 2]"},
        "outputs": {"return": value},
        "blocks": templates,
        "nodes": nodes,
        "step": {"axis": "T"},
        "tie": [[f"{words[0]}.weight", f"{words[3]}.weight"]],
    }
    return build(check(loaded(spec).form, registry()), seed=1).eval()


@pytest.fixture(scope="module")
def models() -> tuple[Any, Any]:
    """Return a model whose nodes have reserved names, and one of the same weights with others."""
    reserved, plain = model(WORDS), model(PLAIN)
    names = dict(zip(WORDS, PLAIN, strict=True))
    weights = reserved.state_dict().items()
    plain.load_state_dict(
        {path.replace(n := path.partition(".")[0], names[n], 1): w for path, w in weights}
    )
    return reserved, plain


@pytest.fixture
def x() -> Tensor:
    """Return an input."""
    return torch.randn(2, 3, 2, generator=torch.Generator().manual_seed(2))


@pytest.mark.integration
def test_weights_have_the_names_that_the_spec_gives_to_nodes(models: tuple[Any, Any]) -> None:
    """In the state dict, and for whoever asks for one."""
    weights = models[0].state_dict()

    assert {path.partition(".")[0] for path in weights} == {*WORDS}
    for path, weight in weights.items():
        assert torch.equal(models[0].get_parameter(path), weight)


@pytest.mark.integration
def test_reserved_names_compute_what_others_do(models: tuple[Any, Any], x: Tensor) -> None:
    """The complete pass, and decoding step by step."""
    reserved, plain = models
    expected = plain(x=x)["return"]

    assert torch.equal(reserved(x=x)["return"], expected)
    state = reserved.begin(weft.Capacity(2, 1, 3, torch.float32, torch.device("cpu")))
    steps = [reserved.step(x=x[:, t : t + 1], state=state, position=t)["return"] for t in range(3)]
    torch.testing.assert_close(torch.cat(steps, 1), expected)


@pytest.mark.integration
def test_a_model_with_reserved_names_is_a_module_like_others(
    models: tuple[Any, Any], x: Tensor
) -> None:
    """The methods of torch are those of torch; copies and pickles compute the same."""
    reserved, plain = models
    expected = plain(x=x)["return"]
    double: nn.Module = copy.deepcopy(reserved).double()

    assert reserved.train().training
    assert not reserved.eval().training
    assert next(double.parameters()).dtype == torch.float64
    assert torch.equal(pickle.loads(pickle.dumps(reserved))(x=x)["return"], expected)
    first, fourth = (reserved.get_parameter(f"{WORDS[n]}.weight") for n in (0, 3))
    assert first is fourth


@pytest.mark.integration
def test_torch_can_export_reserved_names(models: tuple[Any, Any], x: Tensor) -> None:
    """Within a context in which they have an underscore."""
    reserved, plain = models
    with with_free_names(reserved):
        program = torch.export.export(reserved, (), {"x": x})

    torch.testing.assert_close(program.module()(x=x)["return"], plain(x=x)["return"])
    assert {path.partition(".")[0] for path in reserved.state_dict()} == {*WORDS}


def of_one_node(node: dict[str, Any], port: str, **blocks: Any) -> Any:
    """Return a model of one node that reads `a`, which decodes."""
    spec = {
        "format": 1,
        "name": "ports",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"a": "f[B T 2]"},
        "outputs": {"y": f"node.{port}"},
        "step": {"axis": "T"},
        "blocks": blocks,
        "nodes": {"node": node},
    }
    return build(check(loaded(spec).form, registry()), seed=1).eval()


RESERVED = sorted({*keyword.kwlist, *ARGUMENTS})


@pytest.mark.parametrize("word", RESERVED)
def test_ports_that_a_spec_names_may_have_any_name(word: str, x: Tensor) -> None:
    """Those of a formula, of a concatenation, and values that a scan carries."""
    formula = {"use": "elementwise@1", "in": {word: "a"}, "params": {"y": f"2 * {word}"}}
    joined = {
        "use": "concatenate@1",
        "in": {word: "a", "z": "a"},
        "params": {"axis": "width", "names": [word, "z"]},
    }
    scan = {
        "use": "scan@1",
        "in": {"x": "a"},
        "params": {"carry": {word: 2}},
        "fill": {"cell": {"use": "cell"}},
    }
    added = {"use": "elementwise@1", "in": {"v": "x", "w": word}, "params": {"y": "v + w"}}
    cell = {
        "inputs": {"x": "f[b 1 2]", word: "f[b 1 2]"},
        "outputs": {word: "sum.y"},
        "nodes": {"sum": added},
    }

    assert torch.equal(of_one_node(joined, "y")(a=x)["y"], torch.cat([x, x], -1))
    if word not in ("and", "or", "not"):  # operators of formulas
        assert torch.equal(of_one_node(formula, "y")(a=x)["y"], 2 * x)
    model = of_one_node(scan, word, cell=cell)
    state = model.begin(weft.Capacity(2, 1, 3, torch.float32, torch.device("cpu")))
    torch.testing.assert_close(model(a=x)["y"], x.cumsum(1))
    torch.testing.assert_close(model.step(a=x, state=state, position=0)["y"], x.cumsum(1))


def test_the_words_of_a_module_are_torchs() -> None:
    """Add new attributes of a new torch version to the list."""
    public = {name for name in dir(nn.Module()) if not name.startswith("_")}

    assert public <= MODULE_WORDS | ATTRIBUTES
    assert MODULE_WORDS - public <= {"ipu", "mtia", "xpu", "set_submodule"}
