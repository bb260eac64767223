"""The optional outputs of attention: its scores and its weights, which are computed if read."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from weft.blocks.kernels.decode_state import Capacity
from weft.graphs.cost.flops import flops
from weft.graphs.ir.graph import Graph
from weft.graphs.passes.unpad import unpad
from weft.runtime.codegen.build import build
from weft.runtime.codegen.module import lower

from ..single_node import assert_steps_agree, findings_of, graph_of, part_of

TYPES = {"x": "f[B T 8]", "mask": "mask[B T]", "memory": "f[B S 8]", "memory_mask": "mask[B S]"}


def node(use: str, params: dict[str, Any], **wires: str) -> dict[str, Any]:
    """Return a node."""
    return {"use": use, "in": wires, "params": params}


def spec_of(nodes: dict[str, Any], *, step: bool = False, **outputs: str) -> dict[str, Any]:
    """Return a spec of nodes, with the inputs that they read."""
    read = {wire for inner in nodes.values() for wire in inner.get("in", {}).values()}
    inputs = {name: type_ for name, type_ in TYPES.items() if name in read}
    axes = {"B": "batch", "T": "time"} | ({"S": "time"} if "memory" in inputs else {})
    return {
        "format": 1,
        "name": "outputs",
        "axes": axes,
        "inputs": inputs,
        "outputs": outputs,
        "nodes": nodes,
        **({"step": {"axis": "T"}} if step else {}),
    }


def attention(**params: Any) -> dict[str, Any]:
    """Return a node of attention with a mask of padding."""
    return node("attention@1", {"heads": 2, **params}, x="x", mask="mask")


def drawn(graph: Graph, rows: int, length: int) -> dict[str, Tensor]:
    """Return random inputs, of which some positions are padding."""
    generator = torch.Generator().manual_seed(0)
    mask = torch.ones(rows, length, dtype=torch.bool)
    mask[0, 3:] = False
    x = torch.randn(rows, length, 8, generator=generator, dtype=torch.float64)
    return {name: mask if "mask" in name else x for name in graph.inputs}


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_scores_and_weights_are_those_of_the_output(*, causal: bool) -> None:
    """The softmax of the scores that are allowed, and the output made of the weights."""
    nodes = {"node": attention(causal=causal, dropout=0.5)}
    graph = graph_of(spec_of(nodes, y="node.y", scores="node.scores", weights="node.weights"))
    model: Any = build(graph).double().eval()
    inputs = drawn(graph, 2, 5)

    y, scores, weights = (model(**inputs)[name] for name in ("y", "scores", "weights"))

    assert str(graph.outputs["weights"]) == "f[B 2 T T]"
    query, key, value = (
        part(inputs["x"]).unflatten(-1, (2, 4)).transpose(1, 2)
        for part in (model.node.query, model.node.key, model.node.value)
    )
    torch.testing.assert_close(scores, query @ key.transpose(2, 3) / 2)
    hidden = ~inputs["mask"][:, None, None]
    if causal:
        hidden = hidden | torch.ones(5, 5, dtype=torch.bool).triu(1)
    torch.testing.assert_close(weights, scores.masked_fill(hidden, -torch.inf).softmax(-1))
    expected = model.node.out((weights @ value).transpose(1, 2).flatten(2))
    torch.testing.assert_close(y, expected)


def test_outputs_that_nothing_reads_leave_no_trace() -> None:
    """The code is that of a block without them, and so are the results."""
    nodes = {"node": attention()}
    graph, other = (
        graph_of(spec_of(nodes, y="node.y")),
        graph_of(spec_of(nodes, y="node.y", weights="node.weights")),
    )
    inputs = drawn(graph, 2, 5)

    assert "returns" not in lower(graph).source
    assert "returns=('weights',)" in lower(other).source
    y, expected = (build(each_graph).double()(**inputs)["y"] for each_graph in (graph, other))
    torch.testing.assert_close(y, expected)


FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "window": {"fill": {"mask": {"use": "window@1", "params": {"distance": 2}}}},
    "chunks": {"fill": {"mask": {"use": "chunked@1", "params": {"size": 2}}}},
    "groups": {"params": {"heads": 4, "kv_heads": 2, "causal": True}},
    "sinks": {"params": {"heads": 2, "causal": True, "sinks": True}},
    "sigmoid": {"params": {"heads": 2, "causal": True, "softmax": "sigmoid"}},
    "inputs": {"params": {"heads": 2, "causal": True, "cache": "inputs"}},
}


def read_again(form: dict[str, Any]) -> dict[str, Any]:
    """Return a spec that adds the mean of what the scores and weights of all heads read."""
    nodes = {
        "node": {**attention(causal=True), **form},
        "bent": node(
            "softmax@1",
            {"y": "b h t s", "causal": "t", "kind": "sigmoid", "mask": "b s"},
            x="node.scores",
            mask="mask",
        ),
        "both": node("elementwise@1", {"y": "x * z"}, x="node.weights", z="bent.y"),
        "mean": node("reduce@1", {"y": "b h t s -> b t s", "by": "mean"}, x="both.y"),
        "read": node("einsum@1", {"y": "b t s, b s d -> b t d"}, x="mean.y", z="x"),
        "sum": node("elementwise@1", {"y": "x + z"}, x="read.y", z="node.y"),
    }
    return spec_of(nodes, step=True, y="sum.y")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("together", [1, 3])
def test_steps_return_the_rows_of_the_next_queries(form: str, together: int) -> None:
    """With all keys so far, also behind a window, and after the rows were reordered."""
    graph = graph_of(read_again(FORMS[form]))
    model: Any = build(graph).double().eval()
    inputs = drawn(graph, 6, 6)

    assert_steps_agree(model, inputs, together)


@pytest.mark.parametrize("together", [1, 3])
def test_weights_of_a_memory_are_an_output_of_every_step(together: int) -> None:
    """Such as alignments, for each row of a sentence."""
    wires = {"x": "x", "memory": "memory", "mask": "memory_mask"}
    nodes = {"node": node("attention@1", {"heads": 2}, **wires)}
    outputs = {"y": "node.y", "scores": "node.scores", "weights": "node.weights"}
    graph = graph_of(spec_of(nodes, step=True, **outputs))
    model: Any = build(graph).double().eval()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, 6, 8, generator=generator, dtype=torch.float64)
    memory = torch.randn(2, 5, 8, generator=generator, dtype=torch.float64)
    fixed = {"memory": memory, "memory_mask": torch.arange(5) < torch.tensor([[5], [3]])}
    expected = model(x=x, **{n: value.repeat_interleave(2, 0) for n, value in fixed.items()})

    state = model.begin(Capacity(2, 2, 6, torch.float64, torch.device("cpu")), **fixed)
    for position in range(0, 6, together):
        span = slice(position, position + together)
        step = model.step(x=x[:, span], state=state, position=position)

        torch.testing.assert_close(step["y"], expected["y"][:, span])
        for name in ("scores", "weights"):
            torch.testing.assert_close(step[name], expected[name][:, :, span])


def test_nodes_of_one_module_compute_the_same_outputs() -> None:
    """Of two nodes that share their weights, one is read more than the other."""
    nodes = {
        "first": attention(),
        "second": {"share": "first", "in": {"x": "first.y", "mask": "mask"}},
    }
    graph = graph_of(spec_of(nodes, y="second.y", weights="second.weights"))
    model: Any = build(graph).double().eval()
    inputs = drawn(graph, 2, 5)

    outputs = model(**inputs)

    first, _ = model.first(**inputs)
    y, weights = model.first(x=first, mask=inputs["mask"])
    torch.testing.assert_close(outputs, {"y": y, "weights": weights})


def test_a_block_in_a_slot_has_its_output_alone() -> None:
    """The others cannot be wired there."""
    use = {"use": "attention@1", "params": {"heads": 2}}
    layer = {"use": "sublayer@1", "in": {"x": "x"}, "fill": {"f": use}}

    graph = graph_of(spec_of({"layer": layer}, y="layer.y"))

    assert "returns" not in lower(graph).source


def test_unpadded_attention_returns_them_padded() -> None:
    """Masked keys have the weight 0; weights of padded queries are not compared."""
    nodes = {
        "map": node("linear@1", {"d_out": 8}, x="x"),
        "node": node("attention@1", {"heads": 2}, x="map.y", mask="mask"),
        "mean": node(
            "reduce@1", {"y": "b t d -> b d", "by": "mean", "mask": "b t"}, x="node.y", mask="mask"
        ),
    }
    graph = graph_of(spec_of(nodes, y="mean.y", weights="node.weights"))
    inputs = drawn(graph, 2, 5)
    padded, unpadded = (
        build(each_graph, seed=1).double()(**inputs) for each_graph in (graph, unpad(graph))
    )

    torch.testing.assert_close(unpadded["y"], padded["y"])
    rows = inputs["mask"][:, None, :, None]
    torch.testing.assert_close(unpadded["weights"] * rows, padded["weights"] * rows)


def test_costs_are_those_of_the_same_products() -> None:
    """As torch counts them."""
    graph = graph_of(spec_of({"node": attention()}, y="node.y", weights="node.weights"))
    model = build(graph).double()

    with FlopCounterMode(display=False) as counter:
        model(**drawn(graph, 3, 7))

    assert flops(graph, {"B": 3, "T": 7}) == counter.get_total_flops()


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "another name": (
        spec_of({"node": attention()}, y="node.y", w="node.wieghts"),
        "N03",
        "weights",
    ),
    "scores that are summed": (
        spec_of(
            {
                "node": attention(causal=True),
                "y": node("einsum@1", {"y": "b h t s, b s d -> b h t d"}, x="node.scores", z="x"),
            },
            step=True,
            y="y.y",
        ),
        "D01",
        "",
    ),
    "weights of all positions": (
        spec_of(
            {
                "node": attention(),
                "y": node("einsum@1", {"y": "b h t s, b s d -> b h t d"}, x="node.weights", z="x"),
            },
            step=True,
            y="y.y",
        ),
        "D01",
        "",
    ),
    "an output with pairs": (
        spec_of({"node": attention(causal=True)}, step=True, y="node.y", w="node.weights"),
        "D01",
        "",
    ),
}


@pytest.mark.parametrize("fault", WRONG)
def test_wrong_uses_are_found(fault: str) -> None:
    """Each with its place; a wrong name with the one that was meant."""
    spec, code, meant = WRONG[fault]

    finding = findings_of(spec)[0]

    assert finding.code == code
    assert meant in finding.help


def test_the_editor_offers_outputs_that_nothing_reads() -> None:
    """With their types, so that a wire can be made."""
    graph = graph_of(spec_of({"node": attention()}, y="node.y"))
    offers = {name: str(type_) for name, type_ in part_of(graph).offers.items()}

    assert offers == {"scores": "f[B 2 T T]", "weights": "f[B 2 T T]"}
