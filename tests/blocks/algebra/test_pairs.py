"""Attention written out from products and weights: its values, its steps, and what has none."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from weft.blocks.kernels.decode_state import Capacity
from weft.graphs.cost.decode_state import state_by_node
from weft.graphs.ir.graph import Graph
from weft.runtime.codegen.build import build
from weft.runtime.prove.prove import prove

from ..single_node import assert_steps_agree, findings_of, graph_of


def node(use: str, params: dict[str, Any], **wires: str) -> dict[str, Any]:
    """Return a node."""
    return {"use": use, "in": wires, "params": params}


SPLIT = {"y": "b t d, d h k -> b h t k"}
READ = "b h t s, b h s k -> b t h k"
MASKED = {"y": "b h t s", "mask": "b s"}
ATTENTION = {**MASKED, "causal": "t"}
NODES: dict[str, Any] = {
    "keys": node("linear@1", {"d_out": 8}, x="x"),
    "query": node("einsum@1", SPLIT, x="x", z="heads"),
    "key": node("einsum@1", SPLIT, x="keys.y", z="heads"),
    "scores": node("einsum@1", {"y": "b h t k, b h s k -> b h t s"}, x="query.y", z="key.y"),
    "bent": node("elementwise@1", {"y": "2 * tanh(x / 2)"}, x="scores.y"),
    "attention": node("softmax@1", ATTENTION, x="bent.y", mask="mask"),
    "dropped": node("dropout@1", {"dropout": 0.1}, x="attention.y"),
    "halved": node("elementwise@1", {"y": "x / 2"}, x="dropped.y"),
    "read": node("einsum@1", {"y": READ}, x="halved.y", z="key.y"),
}


def written_out() -> dict[str, Any]:
    """Return a spec of attention with two heads of width 4, masked by padding and by order."""
    spec = {
        "format": 1,
        "name": "written-out",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]", "mask": "mask[B T]", "heads": "f[8 2 4]"},
        "outputs": {"y": "read.y"},
        "step": {"axis": "T"},
        "nodes": NODES,
    }
    return copy.deepcopy(spec)


def changed(**nodes: Any) -> dict[str, Any]:
    """Return the spec with other nodes."""
    spec = written_out()
    spec["nodes"] |= nodes
    return spec


def drawn(rows: int, length: int) -> dict[str, Tensor]:
    """Return random inputs, of which some positions are padding."""
    generator = torch.Generator().manual_seed(0)
    mask = torch.ones(rows, length, dtype=torch.bool)
    mask[0, 3:] = False
    return {
        "x": torch.randn(rows, length, 8, generator=generator, dtype=torch.float64),
        "mask": mask,
        "heads": torch.randn(8, 2, 4, generator=generator, dtype=torch.float64),
    }


def model_of(graph: Graph) -> nn.Module:
    """Return the model of a graph in float64, without dropout."""
    return build(graph, seed=1).double().eval()


def test_attention_written_out_is_that_of_torch() -> None:
    """With scores bent by a tanh, and the weights halved."""
    model: Any = model_of(graph_of(written_out()))
    inputs = drawn(2, 5)

    y = model(**inputs)["y"]

    def split(x: Tensor) -> Tensor:
        x_BTHK: Tensor = (x @ inputs["heads"].flatten(1)).unflatten(-1, (2, 4))
        return x_BTHK.transpose(1, 2)

    query, key = split(inputs["x"]), split(model.keys(x=inputs["x"]))
    bias = 2 * torch.tanh(query @ key.transpose(2, 3) / 2)
    later = torch.ones(5, 5, dtype=torch.bool).triu(1)
    bias = bias.masked_fill(later | ~inputs["mask"][:, None, None], -torch.inf)
    expected = F.scaled_dot_product_attention(0 * query, key, key, attn_mask=bias)
    torch.testing.assert_close(y, expected.transpose(1, 2) / 2)


VARIANTS: dict[str, dict[str, Any]] = {
    "softmax": {},
    "biases of keys": {
        "size": node("reduce@1", {"y": "b t d -> b t", "by": "max"}, x="x"),
        "bent": node(
            "elementwise@1",
            {"y": "x + z", "axes": {"x": "b h t s", "z": "b s"}},
            x="scores.y",
            z="size.y",
        ),
    },
    "products of pairs": {
        "halved": node("einsum@1", {"y": "b h t s, b h t s -> b h t s"}, x="dropped.y", z="bent.y")
    },
} | {
    kind: {"attention": node("softmax@1", {**ATTENTION, "kind": kind}, x="bent.y", mask="mask")}
    for kind in ("softmax1", "squared_relu", "sparsemax")
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("together", [1, 3])
def test_steps_of_attention_written_out_give_the_parallel_result(
    variant: str, together: int
) -> None:
    """Also several positions at once, and after the rows were reordered."""
    model: Any = model_of(graph_of(changed(**VARIANTS[variant])))
    inputs = drawn(6, 6)

    assert_steps_agree(model, inputs, together, heads=inputs.pop("heads"))


def test_steps_behind_vectors_in_front_give_the_parallel_result() -> None:
    """The first step computes them too, and all later ones attend to them."""
    spec = written_out()
    spec["nodes"]["front"] = node("prepend@1", {"count": 2}, x="x", mask="mask")
    spec["nodes"]["cut"] = node("slice@1", {"start": 2}, x="read.y")
    for name in ("keys", "query"):
        spec["nodes"][name]["in"]["x"] = "front.y"
    spec["nodes"]["attention"]["in"]["mask"] = "front.mask"
    spec["outputs"] = {"y": "cut.y"}
    model: Any = model_of(graph_of(spec))
    inputs = drawn(2, 6)
    expected = model(**inputs)["y"]
    heads = inputs.pop("heads")

    state = model.begin(Capacity(2, 1, 6, torch.float64, torch.device("cpu")), heads=heads)
    for position in range(6):
        some = {name: value[:, position : position + 1] for name, value in inputs.items()}
        y = model.step(**some, state=state, position=position)["y"]

        torch.testing.assert_close(y, expected[:, position : position + 1])


def test_the_state_is_the_keys_the_values_and_the_mask() -> None:
    """By hand, for 3 sentences of 7 positions: two times 8 numbers of 4 bytes, and one of 1."""
    graph = graph_of(written_out())

    state = state_by_node(graph, {"B": 3, "T": 7})

    stored = {name: size for name, size in state.items() if name in NODES}
    assert stored == {"scores": 3 * 7 * 8 * 4, "read": 3 * 7 * 8 * 4, "attention": 3 * 7}


def test_attention_to_another_sequence_needs_no_state() -> None:
    """Its keys are known before the first step."""
    spec = written_out()
    spec["axes"]["S"] = "time"
    spec["inputs"] |= {"memory": "f[B S 8]", "mask": "mask[B S]"}
    spec["nodes"]["keys"]["in"] = {"x": "memory"}
    spec["nodes"]["attention"]["params"] = {"y": "b h t s"}

    graph = graph_of(spec)

    assert not any(node.steps for node in graph.root.nodes)


def test_a_product_with_weights_keeps_them_causal() -> None:
    """What is 0 stays 0 when it is multiplied, also over heads."""
    spec = written_out()
    mixed = {"y": "b h t s, h g -> b g t s"}
    spec["inputs"]["mixture"] = "f[2 2]"
    spec["nodes"]["mixed"] = {
        "use": "einsum@1",
        "in": {"x": "halved.y", "z": "mixture"},
        "params": mixed,
    }
    spec["nodes"]["read"]["in"]["x"] = "mixed.y"

    assert findings_of(spec) == []


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "all positions": (
        changed(
            attention=node("softmax@1", {"y": "b h t s", "mask": "b s"}, x="bent.y", mask="mask")
        ),
        "/nodes/attention",
        "reads later positions of T",
    ),
    "logarithms": (
        changed(
            attention=node(
                "softmax@1", {**ATTENTION, "kind": "log_softmax"}, x="bent.y", mask="mask"
            )
        ),
        "/nodes/read",
        "reads later positions of T",
    ),
    "scores themselves": (
        changed(read=node("einsum@1", {"y": READ}, x="scores.y", z="key.y")),
        "/nodes/read",
        "reads later positions of T",
    ),
    "one more than weights": (
        changed(halved=node("elementwise@1", {"y": "x + 1"}, x="dropped.y")),
        "/nodes/read",
        "reads later positions of T",
    ),
    "sum of weights": (
        changed(read=node("reduce@1", {"y": "b h t s -> b h t", "by": "max"}, x="halved.y")),
        "/nodes/read",
        "reads later positions of T",
    ),
    "exchanged axes": (
        changed(
            halved=node("einsum@1", {"y": "b h t s -> b h s t"}, x="dropped.y"),
        ),
        "/nodes/halved",
        "exchanges the queries and the keys of T",
    ),
    "sum over queries": (
        changed(
            read=node("einsum@1", {"y": "b h t s, b h t k -> b s h k"}, x="halved.y", z="key.y")
        ),
        "/nodes/read",
        "exchanges the queries and the keys of T",
    ),
    "a third value": (
        changed(
            scores=node(
                "einsum@1",
                {"y": "b h t k, h k, b h s k -> b h t s"},
                x="query.y",
                z="gain",
                w="key.y",
            )
        ),
        "/nodes/scores",
        "'z' has none",
    ),
}


@pytest.mark.parametrize(("spec", "at", "problem"), WRONG.values(), ids=WRONG)
def test_what_a_step_cannot_know_is_found(spec: dict[str, Any], at: str, problem: str) -> None:
    """Later keys, and what has no rows of queries."""
    spec["inputs"] |= {"gain": "f[2 4]"}

    findings = findings_of(spec)

    problems = {f.at: f.problem for f in findings if f.code == "D01" and f.help}
    assert problem in problems[at]


def test_pairs_are_no_output() -> None:
    """A step has no column for a later position."""
    spec = written_out()
    spec["outputs"] = {"y": "attention.y"}

    findings = findings_of(spec)

    assert any(f.code == "D01" and "pairs of positions of T" in f.problem for f in findings)


PRODUCT = node("einsum@1", {"y": "b t d, b s d -> b t s"}, x="x", z="x")
CAUSAL = {"y": "b t s", "causal": "t"}
SUM = {"y": "b t s, b s d -> b t d"}
PAIRED = {"inputs": {"x": "f[B T 8]", "w": "f[B T T]"}, "outputs": {"x": "read.y", "w": "next.y"}}


def elementwise(formula: str, **wires: str) -> dict[str, Any]:
    """Return a node of a formula."""
    return node("elementwise@1", {"y": formula}, **wires)


def decoder(output: str, nodes: dict[str, Any], **blocks: Any) -> dict[str, Any]:
    """Return a spec that decodes, with the scores of all pairs of its input."""
    return {
        "format": 1,
        "name": "pairs",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]"},
        "outputs": {"y": output},
        "step": {"axis": "T"},
        "nodes": {"scores": PRODUCT, **nodes} if "scores.y" in str(nodes) else nodes,
        "blocks": blocks,
    }


def stack(entering: dict[str, Any], **nodes: Any) -> dict[str, Any]:
    """Return a spec whose layers pass pairs on; `entering` computes the first ones."""
    repeat = {
        "repeat": 2,
        "block": "layer",
        "carry": ["x", "w"],
        "in": {"x": "x", "w": "entering.y"},
    }
    nodes = {"read": node("einsum@1", SUM, x="w", z="x"), **nodes}
    return decoder(
        "last.y",
        {"entering": entering, "stack": repeat, "last": elementwise("x", x="stack.x")},
        layer={**PAIRED, "nodes": nodes},
    )


def attended(slot: str, nodes: dict[str, Any]) -> dict[str, Any]:
    """Return a spec of attention with a template in a slot, which reads a gate of the keys."""
    template = {
        "inputs": {"x": "f[b 2 t s]", "g": "f[b 2 s]"},
        "outputs": {"y": "y.y"},
        "nodes": nodes,
    }
    spec = decoder("look.y", {}, inner=template)
    spec["nodes"] = {
        "gate": node("linear@1", {"d_out": 2}, x="x"),
        "turned": node("einsum@1", {"y": "b s h -> b h s"}, x="gate.y"),
        "look": node("attention@1", {"heads": 2, "causal": True}, x="x", g="turned.y")
        | {"fill": {slot: {"use": "inner"}}},
    }
    return spec


def gated(formula: str) -> dict[str, Any]:
    """Return a formula of pairs and of a gate of the keys."""
    axes = {"x": "b h t s", "g": "b h s"}
    return node("elementwise@1", {"y": formula, "axes": axes}, x="x", g="g")


INNER = {"inputs": {"x": "f[b t s]"}, "outputs": {"y": "y.y"}}
WEIGHTS = {"y": node("softmax@1", CAUSAL, x="x")}
FOLLOWED: dict[str, dict[str, Any]] = {
    "out of a template": decoder(
        "read.y",
        {
            "w": {"use": "inner", "in": {"x": "scores.y"}},
            "read": node("einsum@1", SUM, x="w.y", z="x"),
        },
        inner={**INNER, "nodes": WEIGHTS},
    ),
    "out of nested templates": decoder(
        "read.y",
        {
            "w": {"use": "outer", "in": {"x": "scores.y"}},
            "read": node("einsum@1", SUM, x="w.y", z="x"),
        },
        inner={**INNER, "nodes": WEIGHTS},
        outer={**INNER, "nodes": {"y": {"use": "inner", "in": {"x": "x"}}}},
    ),
    "scores from layer to layer": stack(
        elementwise("x", x="scores.y"),
        own=node("einsum@1", {"y": "b t d, b s d -> b t s"}, x="x", z="x"),
        next=elementwise("x + w", x="own.y", w="w"),
        weights=node("softmax@1", CAUSAL, x="next.y"),
        read=node("einsum@1", SUM, x="weights.y", z="x"),
    ),
    "weights from layer to layer": stack(
        node("softmax@1", CAUSAL, x="scores.y"), next=elementwise("w * w", w="w")
    ),
    "the weights of all layers": decoder(
        "read.y",
        {
            "stack": {
                "repeat": 2,
                "block": "layer",
                "carry": ["x"],
                "collect": ["w"],
                "in": {"x": "x"},
            },
            "mean": node("reduce@1", {"y": "l b t s -> b t s", "by": "mean"}, x="stack.w"),
            "read": node("einsum@1", SUM, x="mean.y", z="x"),
        },
        layer={
            "inputs": {"x": "f[B T 8]"},
            "outputs": {"x": "read.y", "w": "w.y"},
            "nodes": {
                "scores": PRODUCT,
                "w": node("softmax@1", CAUSAL, x="scores.y"),
                "read": node("einsum@1", SUM, x="w.y", z="x"),
            },
        },
    ),
    "into a slot": decoder(
        "read.y",
        {
            "w": node("softmax@1", CAUSAL, x="scores.y"),
            "read": node("sublayer@1", {}, x="x", w="w.y") | {"fill": {"f": {"use": "inner"}}},
        },
        inner={
            "inputs": {"x": "f[b s 8]", "w": "f[b s s]"},
            "outputs": {"y": "y.y"},
            "nodes": {"y": node("einsum@1", SUM, x="w", z="x")},
        },
    ),
    "weights in a slot": attended("after_softmax", {"y": gated("x * sigmoid(g)")}),
    "scores in a slot": attended("score", {"y": gated("x + g")}),
    "a bias of a formula": decoder(
        "look.y",
        {
            "bias": node("elementwise@1", {"y": "x / 2", "kind": "bias"}, x="scores.y"),
            "look": node("attention@1", {"heads": 2, "causal": True}, x="x", bias="bias.y"),
        },
    ),
}


@pytest.mark.integration
@pytest.mark.parametrize("spec", FOLLOWED.values(), ids=FOLLOWED)
def test_pairs_decode_wherever_wires_take_them(spec: dict[str, Any]) -> None:
    """Steps give the parallel result, and no position depends on a later one."""
    proof = prove(graph_of(spec), only=("steps", "causality"))

    assert [(p.name, p.outcome) for p in proof.properties] == [
        ("steps", "passed"),
        ("causality", "passed"),
    ]


LEAKING: dict[str, tuple[dict[str, Any], str, str]] = {
    "more than the weights in a slot": (
        attended("after_softmax", {"y": gated("x + g")}),
        "/nodes/look/fill/after_softmax",
        "may not be 0 at later positions of T",
    ),
    "scores over all keys in a slot": (
        attended("score", {"w": gated("x + g"), "y": node("softmax@1", {"y": "b h t s"}, x="w.y")}),
        "/blocks/inner/nodes/y",
        "reads later positions of T",
    ),
    "weights that lose their zeros in a layer": (
        stack(node("softmax@1", CAUSAL, x="scores.y"), next=elementwise("w + 1", w="w")),
        "/blocks/layer/nodes/read",
        "reads later positions of T",
    ),
    "scores out of a template": (
        decoder(
            "read.y",
            {
                "w": {"use": "inner", "in": {"x": "scores.y"}},
                "read": node("einsum@1", SUM, x="w.y", z="x"),
            },
            inner={**INNER, "nodes": {"y": elementwise("tanh(x)", x="x")}},
        ),
        "/nodes/read",
        "reads later positions of T",
    ),
}


@pytest.mark.parametrize(("spec", "at", "problem"), LEAKING.values(), ids=LEAKING)
def test_what_may_read_later_keys_is_found_behind_templates(
    spec: dict[str, Any], at: str, problem: str
) -> None:
    """A sum over keys needs zeros at later ones, wherever they come from."""
    problems = {f.at: f.problem for f in findings_of(spec) if f.code == "D01" and f.help}

    assert problem in problems[at]


def test_a_block_in_after_softmax_keeps_the_zeros_too() -> None:
    """Not only a template; adding to the weights lets a position read later ones."""
    spec = attended("after_softmax", {"y": gated("x * g")})
    spec["nodes"] = {"look": spec["nodes"]["look"] | {"in": {"x": "x"}}}
    del spec["blocks"]

    def problems(fill: dict[str, Any]) -> list[str]:
        spec["nodes"]["look"]["fill"] = {"after_softmax": fill}
        return [f.problem for f in findings_of(spec)]

    assert problems({"use": "elementwise@1", "params": {"y": "x / 2"}}) == []
    assert problems({"use": "talking_heads@1"}) == []
    assert "may not be 0" in problems({"use": "elementwise@1", "params": {"y": "x + 1"}})[0]


def test_values_without_rows_are_not_stored() -> None:
    """Decoding has a buffer for each row of a batch, with as many numbers at each position."""
    spec = written_out()
    spec["inputs"] = {"x": "f[B T 8]", "z": "f[T 8]"}
    spec["outputs"] = {"y": "read.y"}
    spec["nodes"] = {
        "scores": node("einsum@1", {"y": "b t k, s k -> b t s"}, x="x", z="z"),
        "attention": node("softmax@1", {"y": "b t s", "causal": "t"}, x="scores.y"),
        "read": node("einsum@1", {"y": "b t s, b s k -> b t k"}, x="attention.y", z="x"),
    }

    findings = findings_of(spec)

    assert any(f.code == "D01" and "cannot store f[T 8]" in f.problem for f in findings)


def test_what_is_stored_is_not_carried_between_segments() -> None:
    """Its oldest positions cannot be dropped."""
    spec = written_out()
    del spec["step"], spec["inputs"]["heads"], spec["inputs"]["mask"]
    spec["inputs"]["target"] = "f[B T 8]"
    spec["nodes"] = {
        "scores": node("einsum@1", {"y": "b t k, b s k -> b t s"}, x="x", z="x"),
        "attention": node("softmax@1", {"y": "b t s", "causal": "t"}, x="scores.y"),
        "read": node("einsum@1", {"y": "b t s, b s k -> b t k"}, x="attention.y", z="x"),
        "error": {"use": "mean_squared_error@1", "in": {"x": "read.y", "target": "target"}},
    }
    spec |= {
        "outputs": {"loss": "error.loss"},
        "losses": {"loss": 1.0},
        "segments": {"axis": "T", "memory": 4},
    }

    findings = findings_of(spec)

    problems = {f.at: f.problem for f in findings if f.code == "O06"}
    assert "the values that it stores cannot be carried" in problems["/nodes/scores"]
    assert "the values that it stores cannot be carried" in problems["/nodes/read"]
