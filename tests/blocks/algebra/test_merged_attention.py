"""Attention written out is merged into one node, which computes what its nodes compute."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from weft.blocks.kernels.decode_state import Capacity
from weft.graphs.ir.graph import Graph
from weft.graphs.passes.checkpoint import checkpoint_activations
from weft.graphs.passes.merge import merged_nodes
from weft.graphs.passes.unpad import plan_unpad, unpad
from weft.runtime.analysis.attention_weights import recording
from weft.runtime.codegen.build import build
from weft.runtime.codegen.module import lower
from weft.specs.findings import InputError

from ..single_node import assert_steps_agree, graph_of

SPLIT = {"y": "b t (h k) -> b h t k", "sizes": {"h": 2}}

PRODUCT = "b h t k, b h s k -> b h t s"
SUM = "b h t s, b h s k -> b h t k"


def node(use: str, params: dict[str, Any], **wires: str) -> dict[str, Any]:
    """Return a node."""
    return {"use": use, "in": wires, "params": params}


def formula(y: str, **more: Any) -> dict[str, Any]:
    """Return the params of a formula."""
    return {"y": y, **more}


def pairs(**ports: str) -> dict[str, str]:
    """Return names for the axes of the ports of a formula, of which x has the scores."""
    return {"x": "b h t s", **ports}


INPUTS = {
    "x": "f[B T 8]",
    "mask": "mask[B T]",
    "size": "f[B T]",
    "by_head": "f[2]",
    "queries": "f[2 B T 4]",
}
"""Of the specs here; each uses some."""
CAUSAL = {"y": "b h t s", "causal": "t"}


def spec_of(product: str = PRODUCT, total: str = SUM, **changes: Any) -> dict[str, Any]:
    """Return a spec of attention with two heads of width 4, with other nodes; None removes one."""
    nodes: dict[str, Any] = {
        "maps": node("linear@1", {"d_out": 8}, x="x"),
        "query": node("einsum@1", SPLIT, x="maps.y"),
        "key": node("einsum@1", SPLIT, x="x"),
        "value": node("einsum@1", SPLIT, x="maps.y"),
        "products": node("einsum@1", {"y": product}, x="query.y", z="key.y"),
        "scores": node("elementwise@1", formula("x / 2"), x="products.y"),
        "weights": node("softmax@1", CAUSAL, x="scores.y"),
        "sum": node("einsum@1", {"y": total}, x="weights.y", z="value.y"),
    } | changes
    nodes = {name: inner for name, inner in nodes.items() if inner is not None}
    read = {wire for inner in nodes.values() for wire in inner["in"].values()}
    return {
        "format": 1,
        "name": "attention",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {name: type_ for name, type_ in INPUTS.items() if name in read},
        "outputs": {"y": "sum.y"},
        "step": {"axis": "T"},
        "nodes": nodes,
    }


def softmax(**params: Any) -> dict[str, Any]:
    """Return a softmax with a mask of padding."""
    return node("softmax@1", {**CAUSAL, "mask": "b s", **params}, x="scores.y", mask="mask")


def sizes_of_vectors() -> dict[str, Any]:
    """Return a node with a number for each position."""
    return node("reduce@1", {"y": "b t d -> b t", "by": "max"}, x="x")


FORMS: dict[str, dict[str, Any]] = {
    "as in the paper": spec_of(),
    "without a factor": spec_of(weights=node("softmax@1", CAUSAL, x="products.y"), scores=None),
    "with padding": spec_of(weights=softmax()),
    "other names of axes": spec_of(
        "n a q w, n a r w -> n a q r",
        "i j m e, i j e v -> i j m v",
        weights=node("softmax@1", {"y": "p f g l", "causal": "g"}, x="scores.y"),
    ),
    "dots": spec_of("... t k, ... s k -> ... t s", "... t s, ... s k -> ... t k"),
    "exchanged operands": spec_of(
        products=node("einsum@1", {"y": "b h s k, b h t k -> b h t s"}, x="key.y", z="query.y"),
        sum=node("einsum@1", {"y": "b h s k, b h t s -> b h t k"}, x="value.y", z="weights.y"),
    ),
    "heads behind positions": spec_of(total="b h t s, b h s k -> b t h k"),
    "heads in front": spec_of("b h t k, b h s k -> b h t s", "b h t s, b h s k -> h b t k"),
    "one head": spec_of(
        "b t k, b s k -> b t s",
        "b t s, b s k -> b t k",
        maps=None,
        query=node("linear@1", {"d_out": 8}, x="x"),
        key=node("linear@1", {"d_out": 8}, x="x"),
        value=node("linear@1", {"d_out": 6}, x="x"),
        weights=node("softmax@1", {"y": "b t s", "causal": "t"}, x="scores.y"),
    ),
    "shared keys": spec_of(
        "b h t k, b s k -> b h t s",
        "b h t s, b s k -> b h t k",
        key=node("linear@1", {"d_out": 4}, x="x"),
        value=node("linear@1", {"d_out": 3}, x="x"),
    ),
    "two formulas": spec_of(
        half=node("elementwise@1", formula("0.5 * x + 1"), x="products.y"),
        scores=node("elementwise@1", formula("-(x - 2 * x)"), x="half.y"),
    ),
    "biases of pairs": spec_of(
        size=sizes_of_vectors(),
        scores=node(
            "elementwise@1",
            formula("x / 2 + to - at", axes=pairs(to="b t", at="b s")),
            x="products.y",
            to="size.y",
            at="size.y",
        ),
        weights=softmax(),
    ),
    "biases of keys": spec_of(
        size=sizes_of_vectors(),
        scores=node(
            "elementwise@1",
            formula("x + at", axes=pairs(at="b s")),
            x="products.y",
            at="size.y",
        ),
    ),
    "biases of heads and keys": spec_of(
        size=node("reduce@1", {"y": "b h t d -> b h t", "by": "max"}, x="key.y"),
        scores=node(
            "elementwise@1",
            formula("x + at", axes=pairs(at="b h s")),
            x="products.y",
            at="size.y",
        ),
    ),
    "products of positions": spec_of(
        terms=node("einsum@1", {"y": "b t d, b s d -> b t s"}, x="x", z="x"),
        scores=node(
            "elementwise@1",
            formula("(x + 3 * z) / 2", axes=pairs(z="b t s")),
            x="products.y",
            z="terms.y",
        ),
    ),
    "a mask in a formula": spec_of(
        scores=node(
            "elementwise@1",
            formula("where(m, x / 2, -1e9)", axes=pairs(m="b s")),
            x="products.y",
            m="mask",
        ),
    ),
    "an infinite score": spec_of(
        scores=node(
            "elementwise@1",
            formula("where(not m, -inf, x + 1)", axes=pairs(m="b s")),
            x="products.y",
            m="mask",
        ),
    ),
}


def unmerged(graph: Graph) -> Graph:
    """Return a graph whose nodes are computed one by one."""
    return replace(graph, execution=replace(graph.execution, merges=False))


def models_of(spec: dict[str, Any]) -> tuple[Any, Any, Graph]:
    """Return the model of a spec in float64 with merged nodes, one without, and the graph."""
    graph = graph_of(spec)
    merged, apart = (build(each_graph, seed=1).double() for each_graph in (graph, unmerged(graph)))
    return merged, apart, graph


def drawn(graph: Graph, rows: int, length: int) -> dict[str, Tensor]:
    """Return random inputs, of which some positions are padding."""
    generator = torch.Generator().manual_seed(0)
    mask = torch.ones(rows, length, dtype=torch.bool)
    mask[0, 3:] = False
    x = torch.randn(rows, length, 8, generator=generator, dtype=torch.float64)
    return {name: mask if name == "mask" else x for name in graph.inputs}


@pytest.mark.parametrize("form", FORMS)
def test_the_standard_form_is_merged(form: str) -> None:
    """The code names the nodes that the kernel computes."""
    graph = graph_of(FORMS[form])

    ((path, names),) = merged_nodes(graph)

    assert path == "sum"
    assert {"products", "weights", "sum"} <= {*names}
    source = lower(graph).source
    assert f"# One kernel computes the nodes {', '.join(names)}." in source
    assert not re.search(r"self\.(products|weights)\b", source)


@pytest.mark.parametrize("form", FORMS)
def test_merged_nodes_have_the_values_and_gradients_of_the_nodes(form: str) -> None:
    """With respect to the inputs and the weights."""
    merged, apart, graph = models_of(FORMS[form])
    results = []
    for model in (merged, apart):
        inputs = drawn(graph, 3, 6)
        inputs["x"].requires_grad_()
        y = model(**inputs)["y"]
        y.sin().sum().backward()
        results.append([y, inputs["x"].grad, *(p.grad for p in model.parameters())])

    torch.testing.assert_close(*results)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("together", [1, 3])
def test_steps_of_merged_nodes_give_the_parallel_result(form: str, together: int) -> None:
    """Also several positions at once, and after the rows were reordered."""
    model, _, graph = models_of(FORMS[form])
    model.eval()
    inputs = drawn(graph, 6, 6)
    time = [str(axis) for axis in graph.outputs["y"].axes].index("T")

    assert_steps_agree(model, inputs, together, time)


MEMORY: dict[str, dict[str, Any]] = {
    "as in the paper": {},
    "a bias of pairs": {
        "terms": node("einsum@1", {"y": "b t d, b s d -> b t s"}, x="x", z="memory"),
        "scores": node(
            "elementwise@1", formula("x + z", axes=pairs(z="b t s")), x="products.y", z="terms.y"
        ),
    },
    "a bias of keys": {
        "size": node("reduce@1", {"y": "b s d -> b s", "by": "max"}, x="memory"),
        "scores": node(
            "elementwise@1", formula("x - z", axes=pairs(z="b s")), x="products.y", z="size.y"
        ),
    },
    "without padding": {"weights": node("softmax@1", {"y": "b h t s"}, x="scores.y")},
    "a mask in a formula": {
        "scores": node(
            "elementwise@1",
            formula("where(m, x, -inf)", axes=pairs(m="b s")),
            x="products.y",
            m="memory_mask",
        ),
        "weights": node("softmax@1", {"y": "b h t s"}, x="scores.y"),
    },
}


def with_memory(changes: dict[str, Any]) -> dict[str, Any]:
    """Return a spec of attention to another sequence."""
    spec = spec_of(
        key=node("einsum@1", SPLIT, x="memory"),
        value=node("einsum@1", SPLIT, x="memory"),
        weights=node("softmax@1", {"y": "b h t s"}, x="scores.y", mask="memory_mask"),
    )
    spec["nodes"] |= changes
    spec["axes"] |= {"S": "time"}
    read = {wire for inner in spec["nodes"].values() for wire in inner["in"].values()}
    memory = {"memory": "f[B S 8]", "memory_mask": "mask[B S]"}
    spec["inputs"] |= {name: type_ for name, type_ in memory.items() if name in read}
    return spec


@pytest.mark.parametrize("changes", MEMORY)
def test_steps_to_a_memory_give_the_result_of_the_nodes(changes: str) -> None:
    """The memory is stored once for the three rows of each sentence."""
    merged, apart, graph = models_of(with_memory(MEMORY[changes]))
    assert [names for _, names in merged_nodes(graph)]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 4, 8, generator=generator, dtype=torch.float64)
    memory = {
        "memory": torch.randn(2, 5, 8, generator=generator, dtype=torch.float64),
        "memory_mask": torch.arange(5) < torch.tensor([[5], [3]]),
    }
    memory = {name: value for name, value in memory.items() if name in graph.inputs}
    repeated = {name: value.repeat_interleave(3, 0) for name, value in memory.items()}
    expected = apart.eval()(x=x, **repeated)["y"]

    model = merged.eval()
    torch.testing.assert_close(model(x=x, **repeated)["y"], expected)
    state = model.begin(Capacity(2, 3, 4, torch.float64, torch.device("cpu")), **memory)
    for position in range(0, 4, 2):
        y = model.step(x=x[:, position : position + 2], state=state, position=position)["y"]
        torch.testing.assert_close(y, expected[:, :, position : position + 2])


def test_grouped_heads_read_the_keys_of_their_group() -> None:
    """Four heads in two groups, whose axes are those of an einsum."""
    spec = spec_of(
        "b g h t k, b g s k -> b g h t s",
        "b g h t s, b g s k -> b t g h k",
        query=node("einsum@1", {"y": "b t d, d g h k -> b g h t k"}, x="maps.y", z="maps_of_heads"),
        weights=node("softmax@1", {"y": "b g h t s", "causal": "t"}, x="scores.y"),
    )
    spec["inputs"]["maps_of_heads"] = "f[8 2 2 4]"
    merged, apart, graph = models_of(spec)
    assert [path for path, _ in merged_nodes(graph)] == ["sum"]
    inputs = drawn(graph, 3, 5)
    heads = torch.randn(8, 2, 2, 4, dtype=torch.float64)

    y = merged.eval()(**{**inputs, "maps_of_heads": heads})["y"]

    torch.testing.assert_close(y, apart.eval()(**{**inputs, "maps_of_heads": heads})["y"])
    state = merged.begin(Capacity(3, 1, 5, torch.float64, torch.device("cpu")), maps_of_heads=heads)
    for position in range(5):
        step = merged.step(
            x=inputs["x"][:, position : position + 1], state=state, position=position
        )
        torch.testing.assert_close(step["y"], y[:, position : position + 1])


OTHERS: dict[str, dict[str, Any]] = {
    "weights that are read elsewhere": spec_of(
        mean=node("einsum@1", {"y": SUM}, x="weights.y", z="key.y"),
        both=node("elementwise@1", formula("x + z"), x="first.y", z="mean.y"),
        first=node("einsum@1", {"y": SUM}, x="weights.y", z="value.y"),
        sum=node("elementwise@1", formula("2 * x"), x="both.y"),
    ),
    "scores that are read elsewhere": spec_of(
        gate=node("softmax@1", {**CAUSAL, "kind": "squared_relu"}, x="scores.y"),
        gated=node("elementwise@1", formula("x * z"), x="weights.y", z="gate.y"),
        sum=node("einsum@1", {"y": SUM}, x="gated.y", z="value.y"),
    ),
    "products that are read elsewhere": spec_of(
        scores=node("elementwise@1", formula("x * relu(z)"), x="products.y", z="products.y"),
    ),
    "bent scores": spec_of(scores=node("elementwise@1", formula("3 * tanh(x)"), x="products.y")),
    "another softmax": spec_of(
        weights=node("softmax@1", {**CAUSAL, "kind": "softmax1"}, x="scores.y"),
    ),
    "dropout of scores": spec_of(
        dropped=node("dropout@1", {"dropout": 0.1}, x="products.y"),
        scores=node("elementwise@1", formula("x / 2"), x="dropped.y"),
    ),
    "weights times a number": spec_of(
        halved=node("elementwise@1", formula("x / 2"), x="weights.y"),
        sum=node("einsum@1", {"y": SUM}, x="halved.y", z="value.y"),
    ),
    "masked scores that are multiplied": spec_of(
        hidden=node(
            "elementwise@1",
            formula("where(m, x, -1e9)", axes=pairs(m="b s")),
            x="products.y",
            m="mask",
        ),
        scores=node("elementwise@1", formula("x / 2"), x="hidden.y"),
    ),
    "a small score of masked keys": spec_of(
        scores=node(
            "elementwise@1",
            formula("where(m, x, -100)", axes=pairs(m="b s")),
            x="products.y",
            m="mask",
        ),
    ),
    "a learned factor": spec_of(
        factor=node("parameter@1", {"shape": [2], "init": "ones"}),
        scores=node(
            "elementwise@1",
            formula("x * z", axes=pairs(z="h")),
            x="products.y",
            z="factor.y",
        ),
    ),
}


@pytest.mark.parametrize("form", OTHERS)
def test_other_forms_are_not_merged(form: str) -> None:
    """They compute something else, or show what is between."""
    assert merged_nodes(graph_of(OTHERS[form])) == []


def test_weights_that_are_an_output_are_not_merged() -> None:
    """In a model that does not decode."""
    spec = spec_of(weights=node("softmax@1", {"y": "b h t s"}, x="scores.y"))
    del spec["step"]
    assert merged_nodes(graph_of(spec))
    spec["outputs"]["weights"] = "weights.y"

    assert merged_nodes(graph_of(spec)) == []


UNPADDED: dict[str, dict[str, Any]] = {
    "causal": {"weights": node("softmax@1", CAUSAL, x="scores.y")},
    "masked": {
        "weights": node("softmax@1", {"y": "b h t s", "mask": "b s"}, x="scores.y", mask="mask")
    },
    "masked by a formula": {
        "scores": node(
            "elementwise@1",
            formula("where(m, x, -inf)", axes=pairs(m="b s")),
            x="products.y",
            m="mask",
        ),
        "weights": node("softmax@1", {"y": "b h t s"}, x="scores.y"),
    },
}


@pytest.mark.parametrize("form", UNPADDED)
def test_a_model_with_merged_nodes_is_unpadded(form: str) -> None:
    """Its outputs and gradients do not change; computed one by one, the sum needs the padding."""
    spec = spec_of(
        **UNPADDED[form],
        merge=node("einsum@1", {"y": "b h t k -> b t (h k)"}, x="sum.y"),
        out=node("linear@1", {"d_out": 8}, x="merge.y"),
        mean=node(
            "reduce@1", {"y": "b t d -> b d", "by": "mean", "mask": "b t"}, x="out.y", mask="mask"
        ),
    )
    del spec["step"]
    spec["outputs"] = {"y": "mean.y"}
    graph = graph_of(spec)
    assert plan_unpad(graph).axes == ("T",)
    assert plan_unpad(unmerged(graph)).axes == ()
    inputs, results = drawn(graph, 3, 6), []
    for changed in (graph, unpad(graph)):
        model = build(changed, seed=1).double()
        y = model(**inputs)["y"]
        y.sin().sum().backward()
        results.append([y, *(p.grad for p in model.parameters())])

    torch.testing.assert_close(*results)


def test_dropout_of_merged_weights_is_that_of_its_node() -> None:
    """In training, the mean over many draws is the result without dropout."""
    spec = spec_of(
        drop=node("dropout@1", {"dropout": 0.3}, x="weights.y"),
        sum=node("einsum@1", {"y": SUM}, x="drop.y", z="value.y"),
    )
    model, _, graph = models_of(spec)
    ((_, names),) = merged_nodes(graph)
    assert names == ("products", "scores", "weights", "drop", "sum")
    inputs = drawn(graph, 1, 4)
    expected = model.eval()(**inputs)["y"]
    torch.manual_seed(0)
    many = {name: value.expand(4000, *value.shape[1:]) for name, value in inputs.items()}

    mean = model.train()(**many)["y"].mean(0, keepdim=True)

    torch.testing.assert_close(mean, expected, atol=0.05, rtol=0)
    assert not torch.equal(model(**inputs)["y"], expected)


def test_the_weights_of_merged_nodes_can_be_recorded() -> None:
    """They are those of the softmax, as for the block."""
    model, _, graph = models_of(FORMS["with padding"])
    inputs = drawn(graph, 2, 5)

    with recording(model) as maps:
        model(**inputs)

    (weights,) = maps.values()
    assert weights.shape == (2, 2, 5, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 5, dtype=torch.float64))
    assert weights.triu(1).abs().max() == 0
    assert weights[0, ..., 3:].abs().max() == 0


def test_activation_checkpointing_of_a_part_of_the_kernel_is_refused() -> None:
    """It would have no effect; the merged node can be selected."""
    graph = graph_of(FORMS["as in the paper"])
    inputs = drawn(graph, 2, 5)
    with pytest.raises(InputError, match="'weights' is computed in one kernel with 'sum'"):
        checkpoint_activations(graph, ["weights"])
    results = []
    for changed in (graph, checkpoint_activations(graph, ["sum"])):
        model = build(changed, seed=1).double()
        y = model(**inputs)["y"]
        y.sin().sum().backward()
        results.append([y, *(p.grad for p in model.parameters())])

    torch.testing.assert_close(*results)
