"""Tests of the paper's figures: each box and each arrow that Figures 1 and 2 have, and no other."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.draw.diagram import diagram, find, lay_out_block
from weft.graphs.draw.layout import lay_out_graph
from weft.graphs.draw.paper import restyle
from weft.graphs.draw.picture import Picture
from weft.graphs.ir.block_type import Inside, Step
from weft.graphs.ir.graph import Graph, Part
from weft.specs.findings import InputError
from weft.specs.load import load, loaded

from .test_diagram import toy


@pytest.fixture(scope="module")
def base() -> Graph:
    """Return the paper's base model."""
    return shipped("transformer-base")


def shipped(name: str) -> Graph:
    """Return the graph of a shipped spec."""
    spec = load(name)
    return check(spec.form, registry(), source=spec.source)


def arrows(picture: Picture) -> set[tuple[str, str]]:
    """Return the wires as pairs of titles, numbered within each column."""
    return {(_title(picture, a), _title(picture, b)) for a, b in picture.wires}


def _title(picture: Picture, name: str) -> str:
    box = picture.boxes[name]
    column = picture.stack_of(name).removeprefix("input/")
    words = box.words.title if box.shape != "join" else "branch"
    alike = [
        other
        for other, one in picture.boxes.items()
        if one.words.title == box.words.title
        and one.shape == box.shape
        and picture.stack_of(other) == picture.stack_of(name)
    ]
    number = f" {alike.index(name) + 1}" if len(alike) > 1 else ""
    return f"{column}: {words}{number}"


def test_figure_1_has_the_boxes_and_arrows_of_the_paper(base: Graph) -> None:
    """Two stacks; a residual arrow around each of five sub-layers; probabilities at the top."""
    picture = lay_out_graph(base, residuals=True)
    restyle(picture, base)

    left, right = "source: ", "target: "
    one = [
        *("Inputs", "Input Embedding", "+", "branch 1", "Multi-Head Attention", "Add & Norm 1"),
        *("branch 2", "Feed Forward", "Add & Norm 2"),
    ]
    other = [
        *("Outputs (shifted right)", "Output Embedding", "+", "branch 1"),
        *("Masked Multi-Head Attention", "Add & Norm 1", "branch 2", "Multi-Head Attention"),
        *("Add & Norm 2", "branch 3", "Feed Forward", "Add & Norm 3", "Linear", "Softmax"),
        "Output Probabilities",
    ]
    chains = {(left + a, left + b) for a, b in itertools.pairwise(one)}
    chains |= {(right + a, right + b) for a, b in itertools.pairwise(other)}
    assert arrows(picture) == chains | {(left + "Add & Norm 2", right + "Multi-Head Attention")}
    assert sorted(picture.heads.values()) == [2, 3, 3]
    assert {(_title(picture, a), _title(picture, b)) for a, b in picture.residuals} == {
        *((f"{left}branch {i}", f"{left}Add & Norm {i}") for i in (1, 2)),
        *((f"{right}branch {i}", f"{right}Add & Norm {i}") for i in (1, 2, 3)),
    }
    beside = {(picture.boxes[box].words.title, side) for box, _, side in picture.beside}
    for side in ("left", "right"):
        assert {("6×", side), ("Positional Encoding", side)} <= beside


def test_the_style_of_the_paper_leaves_out_params_masks_and_the_title(base: Graph) -> None:
    """As Figure 1; the residual arrows of a stack face away from the other stack."""
    source = diagram(base, style="paper").source

    for absent in ("8 heads", "mask", "63.1M", "dashed"):
        assert absent not in source.replace(base.doc, "")
    assert '"join/encoder.*.feed_forward":w -> "band/encoder.*.feed_forward/0":w' in source
    assert '"join/decoder.*.feed_forward":e -> "band/decoder.*.feed_forward/0":e' in source
    assert source == diagram(base, style="paper").source


def test_an_output_that_is_a_mask_is_left_out_with_its_wire() -> None:
    """It would be a word without an arrow; other names of params are words of the paper."""
    graph = check(loaded(MASKED).form, registry())
    picture = lay_out_graph(graph)
    restyle(picture, graph)

    titles = [box.words.title for box in picture.boxes.values()]
    assert "Masked Squared ReLU" in titles
    assert len(picture.outputs) == 1


MASKED: dict[str, Any] = {
    "format": 1,
    "name": "masked",
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"x": "f[B T T]", "m": "mask[B T]"},
    "outputs": {"y": "twice.y", "kept": "m"},
    "nodes": {
        "weights": {
            "use": "softmax@1",
            "in": {"x": "x"},
            "params": {"y": "b t s", "causal": "t", "kind": "squared_relu"},
        },
        "twice": {
            "use": "elementwise@1",
            "in": {"z": "weights.y"},
            "params": {"y": "z * 2"},
        },
    },
}


def test_figure_2_has_the_operations_of_the_paper(base: Graph) -> None:
    """MatMul, Scale, Mask, SoftMax and MatMul in each head; linear maps before and after."""
    part = find(base, "encoder.*.self_attention")
    assert isinstance(part, Part)
    picture = lay_out_block(part, "encoder.*.self_attention")
    restyle(picture, None)

    [heads] = picture.root.frames
    assert (heads.title, heads.copies) == ("Scaled Dot-Product Attention", 8)
    inside = [picture.boxes[name] for name in heads.boxes]
    steps = [box.words.title for box in inside if box.shape == "box"]
    assert steps == ["MatMul", "Scale", "Mask", "SoftMax", "MatMul"]
    wires = {
        ("input/V", "node/value"),
        ("input/K", "node/key"),
        ("input/Q", "node/query"),
        ("node/key", "node/scores"),
        ("node/query", "node/scores"),
        ("node/scores", "node/scale"),
        ("node/scale", "node/masked"),
        ("node/masked", "node/weights"),
        ("node/weights", "node/read"),
        ("node/value", "join/heads/node/value"),
        ("join/heads/node/value", "node/read"),
        ("node/read", "node/concat"),
        ("node/concat", "node/out"),
        ("node/out", "output/y"),
    }
    assert set(picture.wires) == wires


def attention(params: dict[str, Any], fill: dict[str, Any], **wires: str) -> Part:
    """Return one use of attention in a minimal spec."""
    value = {
        "format": 1,
        "name": "one",
        "axes": {"B": "batch", "T": "time", "S": "time"},
        "inputs": {"x": "f[B T 24]", "memory": "f[B S 8]"},
        "outputs": {"y": "a.y"},
        "nodes": {"a": {"use": "attention@1", "in": {"x": "x", **wires}, "params": params}},
    }
    value["nodes"]["a"] |= {"fill": fill} if fill else {}
    if not wires:
        del value["inputs"]["memory"]
    part = find(check(loaded(value).form, registry()), "a")
    assert isinstance(part, Part)
    return part


def titles(part: Part) -> list[tuple[str, str]]:
    """Return the title and the params of each operation of a block."""
    boxes = lay_out_block(part, "a").boxes
    shown = [boxes[name].words for name in boxes if name.startswith("node/")]
    return [(words.title, words.detail) for words in shown]


def test_the_inside_of_attention_shows_what_its_params_and_slots_are() -> None:
    """Order of computation: rotary before the product, the bound after the scale."""
    params = {"heads": 6, "kv_heads": 2, "d_k": 4, "causal": True, "bias": False, "dropout": 0.1}
    fill = {
        "after_query": {"use": "rms_norm@1"},
        "position": {"use": "rotary@1"},
        "score": {"use": "elementwise@1", "params": {"y": "50 * tanh(x / 50)"}},
        "mask": {"use": "window@1", "params": {"distance": 3}},
        "output": {"use": "head_gates@1"},
    }

    shared = "24 to 2 × 4, each for 3 heads, no bias"
    assert titles(attention(params, fill)) == [
        ("linear", f"V: {shared}"),
        ("linear", f"K: {shared}"),
        ("linear", "Q: 24 to 6 × 4, no bias"),
        ("RMS norm", "slot after_query"),
        ("rotary", "slot position"),
        ("rotary", "slot position"),
        ("matmul", "Q Kᵀ"),
        ("scale", "by 1/√4"),
        ("50 * tanh(x / 50)", "slot score"),
        ("mask", "causal, window distance 3"),
        ("softmax", ""),
        ("dropout", "0.1"),
        ("matmul", "weights times V"),
        ("head gates", "slot output"),
        ("concat", "6 × 4"),
        ("linear", "to 24, no bias"),
    ]


@pytest.mark.parametrize(
    ("use", "order"),
    [
        ({"use": "alibi@1"}, ["matmul", "scale", "ALiBi", "add"]),
        ({"use": "relative_keys@1"}, ["matmul", "relative keys", "add", "scale"]),
    ],
    ids=["alibi", "relative_keys"],
)
def test_a_term_of_the_scores_is_added_before_or_after_the_scale(
    use: dict[str, Any], order: list[str]
) -> None:
    """ALiBi adds to softmax's input; Shaw et al. 2018 (equation 4) divide the sum by sqrt(d_k)."""
    picture = lay_out_block(attention({"heads": 2, "bias": True}, {"position": use}), "a")
    path = ["node/scores"]
    while path[-1] != "node/weights":
        path.append(next(b for a, b in picture.wires if a == path[-1]))

    middle = [picture.boxes[name].words.title for name in path[:-1]]
    assert middle == [title for title in order if title not in ("ALiBi", "relative keys")]
    assert ("node/position", "node/add position") in picture.wires


def test_cross_attention_reads_keys_and_values_from_the_memory() -> None:
    """Queries come from `x`; without a scale there is no such box, and the title says so."""
    part = attention({"heads": 2, "scale": "none"}, {}, memory="memory")
    picture = lay_out_block(part, "a")

    assert ("input/memory", "node/key") in picture.wires
    assert ("input/memory", "node/value") in picture.wires
    assert ("input/x", "node/query") in picture.wires
    assert "scale" not in [title for title, _ in titles(part)]
    assert [frame.title for frame in picture.root.frames] == ["dot-product attention"]


def test_a_template_and_a_copy_can_be_drawn_alone(base: Graph) -> None:
    """With their inputs and outputs; the masked layer of a decoder has no encoder in it."""
    source = diagram(base, node="decoder.3").source

    assert "node/cross_attention" in source
    assert "input/memory" in source
    assert "encoder" not in source


@pytest.mark.parametrize(
    ("node", "help_"),
    [("encoder.*.self_attentoin", "did you mean"), ("head", "encoder")],
    ids=["unknown", "closed"],
)
def test_a_node_without_a_drawing_gets_help(base: Graph, node: str, help_: str) -> None:
    """The finding names the nearest node, or nodes that can be drawn."""
    with pytest.raises(InputError, match=node) as caught:
        diagram(base, node=node)

    assert help_ in caught.value.help


@pytest.mark.parametrize(
    "settings",
    [
        {"style": "paper", "form": "typed"},
        {"style": "paper", "residuals": True},
        {"node": "stack.*.attend", "residuals": True},
        {"node": "stack.*.attend", "form": "expanded"},
    ],
    ids=str,
)
def test_settings_without_effect_are_refused(settings: dict[str, Any]) -> None:
    """Nobody waits for what a picture does not have."""
    with pytest.raises(InputError):
        diagram(toy(), **settings)


def test_residual_arrows_need_residual_paths() -> None:
    """Mamba's layers are wired from sums; there is nothing to open."""
    spec = {
        "format": 1,
        "name": "plain",
        "axes": {"B": "batch"},
        "inputs": {"x": "f[B 8]"},
        "outputs": {"y": "a.y"},
        "nodes": {"a": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": 2}}},
    }

    with pytest.raises(InputError, match="no block of plain has a residual path"):
        diagram(check(loaded(spec).form, registry()), residuals=True)


def test_residual_arrows_go_around_what_they_skip(base: Graph) -> None:
    """Post-norm: from the input of a sub-layer to `add & norm`; pre-norm: around the norm too."""
    after = lay_out_graph(base, residuals=True)
    before = lay_out_graph(toy(), residuals=True)

    assert len(after.residuals) == 5
    chain = ["join/stack.*.mlp", "band/stack.*.mlp/0", "node/stack.*.mlp/f", "band/stack.*.mlp/1"]
    assert set(itertools.pairwise(chain)) <= set(before.wires)
    assert (chain[0], chain[-1]) in before.residuals
    bands = [before.boxes[name].words.title for name in chain[1::2]]
    assert bands == ["norm", "add"]


STEP = Step(name="y", reads=("x",), title="double")


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        (lambda _: [STEP], "not an Inside"),
        (lambda _: Inside(steps=(STEP,), outputs={"y": "z"}), "'y' is 'z'"),
        (
            lambda _: Inside(steps=(replace(STEP, reads=("w",)),), outputs={"y": "y"}),
            "'w', which is unknown",
        ),
        (lambda part: part.gone, "AttributeError"),
    ],
    ids=["other", "output", "reads", "raises"],
)
def test_a_block_that_declares_no_operations_is_refused(inside: Any, problem: str) -> None:
    """A block of another package gets a finding that names the mistake, not a traceback."""
    part = attention({"heads": 2}, {})
    wrong = replace(part, block=replace(part.block, inside=inside))

    with pytest.raises(InputError, match="attention@1") as caught:
        lay_out_block(wrong, "a")

    assert problem in caught.value.problem


def test_a_block_of_another_package_can_declare_its_operations() -> None:
    """As docs/write-an-extension.md shows."""
    part = attention({"heads": 2}, {})
    own = replace(
        part, block=replace(part.block, inside=lambda _: Inside(steps=(STEP,), outputs={"y": "y"}))
    )

    assert set(lay_out_block(own, "a").wires) == {("input/x", "node/y"), ("node/y", "output/y")}


def block(use: str, params: dict[str, Any], **more: Any) -> Picture:
    """Return the inside of one block that reads `x`."""
    value = {
        "format": 1,
        "name": "one",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]", **({"mask": "mask[B T]"} if "mask" in more else {})},
        "outputs": {"y": "a.y"},
        "nodes": {"a": {"use": use, "in": {"x": "x", **more}, "params": params}},
    }
    part = find(check(loaded(value).form, registry()), "a")
    assert isinstance(part, Part)
    return lay_out_block(part, "a")


def test_the_inside_of_a_gated_feed_forward_network_is_its_formula() -> None:
    """(silu(x Wg) * x W1) W2, Shazeer 2020, section 2: only one of the maps is activated."""
    picture = block("gated_feed_forward@1", {"d_ff": 12, "bias": False, "dropout": 0.1})

    chain = ["node/gated", "node/dropout", "node/outer", "output/y"]
    assert set(picture.wires) == {
        ("input/x", "node/inner"),
        ("input/x", "node/gate"),
        ("node/gate", "node/activated"),
        ("node/inner", "node/gated"),
        ("node/activated", "node/gated"),
        *itertools.pairwise(chain),
    }
    assert picture.boxes["node/activated"].words.title == "silu"
    assert picture.boxes["node/outer"].words.detail == "to 8, no bias"


def test_the_inside_of_a_mixture_has_experts_a_router_and_two_outputs() -> None:
    """Shazeer et al. 2017, section 2; the mask keeps padding from the experts."""
    picture = block("mixture_of_experts@1", {"experts": 4, "d_ff": 12}, mask="mask")

    [experts] = picture.root.frames
    assert (experts.copies, experts.boxes) == (
        4,
        ["node/inner", "node/activated", "node/outer"],
    )
    assert set(picture.wires) == {
        *itertools.pairwise(["input/x", *experts.boxes, "node/sum", "output/y"]),
        *itertools.pairwise(["input/x", "node/router", "node/p", "node/chosen", "node/sum"]),
        ("input/mask", "node/chosen"),
        ("node/p", "node/balance"),
        ("node/chosen", "node/balance"),
        ("node/balance", "output/balance"),
    }
    assert picture.boxes["node/chosen"].words.title == "top 2 of 4"
