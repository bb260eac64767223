"""Attention against torch's layer, and against the formula."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.blocks.attention.multi_head import ATTENTION, AttentionParams
from weft.blocks.attention.multi_head_module import Attention
from weft.blocks.kernels.decode_state import Capacity
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.runtime.codegen.build import build
from weft.specs.findings import SpecError
from weft.specs.load import loaded

from ..single_node import findings_of, graph_of, spec_of, type_of

MASK = torch.tensor([[True, True, False, True, False], [True, False, True, True, True]])


def pair(d_memory: int = 8, *, causal: bool = False) -> tuple[Attention, nn.MultiheadAttention]:
    """Return our attention and torch's, with the same weights."""
    ours = Attention(8, d_memory, 2, 4, 4, causal=causal).double()
    theirs = nn.MultiheadAttention(
        8, 2, batch_first=True, kdim=d_memory, vdim=d_memory, dtype=torch.float64
    )
    with torch.no_grad():
        for weight in ours.parameters():
            weight.normal_(std=0.5)
        three = (ours.query, ours.key, ours.value)
        if theirs.in_proj_weight is not None:
            theirs.in_proj_weight.copy_(torch.cat([linear.weight for linear in three]))
        else:
            theirs.q_proj_weight.copy_(ours.query.weight)
            theirs.k_proj_weight.copy_(ours.key.weight)
            theirs.v_proj_weight.copy_(ours.value.weight)
        theirs.in_proj_bias.copy_(torch.cat([linear.bias for linear in three]))
        theirs.out_proj.load_state_dict(ours.out.state_dict())
    return ours, theirs


def test_a_key_bias_does_not_change_the_output() -> None:
    """Layers with and without a key bias give the same output; without it, there is no weight."""
    with_one, _ = pair()
    without = Attention(8, 8, 2, 4, 4, bias=("query", "value", "out")).double()
    without.load_state_dict({k: v for k, v in with_one.state_dict().items() if k != "key.bias"})
    x = torch.randn(2, 5, 8, dtype=torch.float64)

    assert with_one.key.bias.abs().min() > 0
    torch.testing.assert_close(without(x), with_one(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("mask", [None, MASK], ids=["no padding", "padding"])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_self_attention_is_torchs(mask: Tensor | None, *, causal: bool) -> None:
    """In torch's mask, true means masked; in ours, true means may be attended to."""
    ours, theirs = pair(causal=causal)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1) if causal else None

    found = ours(x, mask=mask)

    padding = None if mask is None else ~mask
    expected, _ = theirs(x, x, x, key_padding_mask=padding, attn_mask=hidden)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("d_memory", [8, 6], ids=["equal widths", "another width"])
def test_cross_attention_is_torchs(d_memory: int) -> None:
    """Queries come from one sequence, keys and values from another of any width and length."""
    ours, theirs = pair(d_memory)
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    memory = torch.randn(2, 5, d_memory, dtype=torch.float64)

    found = ours(x, memory, MASK)

    expected, _ = theirs(x, memory, memory, key_padding_mask=~MASK)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_gradients_are_torchs() -> None:
    """The gradients of all weights and of the input are equal."""
    ours, theirs = pair(causal=True)
    x = torch.randn(2, 5, 8, dtype=torch.float64, requires_grad=True)
    pull = torch.randn(2, 5, 8, dtype=torch.float64)
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)

    (x_slope,) = torch.autograd.grad((ours(x) * pull).sum(), x, retain_graph=True)
    (ours(x) * pull).sum().backward()
    expected, _ = theirs(x, x, x, attn_mask=hidden)
    (x_expected,) = torch.autograd.grad((expected * pull).sum(), x, retain_graph=True)
    (expected * pull).sum().backward()

    torch.testing.assert_close(x_slope, x_expected, rtol=0, atol=1e-12)
    for name, rows in (("query", slice(0, 8)), ("key", slice(8, 16)), ("value", slice(16, 24))):
        weight = getattr(ours, name).weight
        torch.testing.assert_close(
            weight.grad, theirs.in_proj_weight.grad[rows], rtol=0, atol=1e-12
        )
    torch.testing.assert_close(
        ours.out.weight.grad, theirs.out_proj.weight.grad, rtol=0, atol=1e-12
    )


def test_follows_the_formula_of_the_paper() -> None:
    """One head with identity projections is softmax(q k^T / sqrt(2)) v, by hand."""
    attention = Attention(2, 2, 1, 2, 2, bias=False)
    for projection in attention.children():
        nn.init.eye_(projection.weight)
    query = torch.tensor([[[1.0, 0.0]]])
    memory = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])

    found = attention(query, memory)

    share = math.exp(1 / math.sqrt(2)) / (math.exp(1 / math.sqrt(2)) + 1)
    torch.testing.assert_close(found, torch.tensor([[[share, 1 - share]]]))


def test_heads_have_widths_of_their_own() -> None:
    """Table 3 rows B vary d_k separately from d_v: each head by the formula, then projected."""
    heads, d_k, d_v = 3, 5, 2
    attention = Attention(8, 8, heads, d_k, d_v).double()
    for weight in attention.parameters():
        nn.init.normal_(weight, std=0.5)
    x = torch.randn(4, 8, dtype=torch.float64)

    found = attention(x[None])[0]

    read = []
    for h in range(heads):
        keys, values = slice(h * d_k, (h + 1) * d_k), slice(h * d_v, (h + 1) * d_v)
        q = x @ attention.query.weight[keys].T + attention.query.bias[keys]
        k = x @ attention.key.weight[keys].T + attention.key.bias[keys]
        v = x @ attention.value.weight[values].T + attention.value.bias[values]
        score = torch.exp(q @ k.T / math.sqrt(d_k))
        read.append(score / score.sum(-1, keepdim=True) @ v)
    expected = torch.cat(read, -1) @ attention.out.weight.T + attention.out.bias
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_a_fully_masked_row_attends_to_zeros() -> None:
    """A sentence that is all padding gives no NaN; the output is the bias of the projection."""
    attention = Attention(8, 8, 2, 4, 4)
    nn.init.normal_(attention.out.bias)
    x = torch.randn(2, 3, 8, requires_grad=True)
    mask = torch.tensor([[False, False, False], [True, True, False]])

    found = attention(x, mask=mask)
    found.sum().backward()

    torch.testing.assert_close(found[0], attention.out.bias.expand(3, 8))
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert all(weight.grad.isfinite().all() for weight in attention.parameters())


def test_a_causal_memory_has_the_positions_of_the_queries() -> None:
    """Query t reads the memory up to t, as torch's layer does with this mask."""
    ours, theirs = pair(6, causal=True)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    memory = torch.randn(2, 5, 6, dtype=torch.float64)
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)

    expected, _ = theirs(x, memory, memory, attn_mask=hidden)
    torch.testing.assert_close(ours(x, memory), expected, rtol=0, atol=1e-12)

    state = ours.begin(Capacity(2, 1, 5, x.dtype, x.device))
    steps = [
        ours.step(x[:, t : t + 1], memory=memory[:, t : t + 1], state=state, position=t)
        for t in range(5)
    ]
    torch.testing.assert_close(torch.cat(steps, 1), expected, rtol=0, atol=1e-12)


def test_a_causal_memory_of_another_axis_is_refused() -> None:
    """Positions of another sequence are neither earlier nor later."""
    spec = {
        "format": 1,
        "name": "one",
        "axes": {"B": "batch", "T": "time", "S": "time"},
        "inputs": {"x": "f[B T 8]", "memory": "f[B S 8]"},
        "outputs": {"y": "node.y"},
        "nodes": {
            "node": {
                "use": "attention@1",
                "params": {"heads": 2, "causal": True},
                "in": {"x": "x", "memory": "memory"},
            }
        },
    }

    with pytest.raises(SpecError, match="but S at port 'memory'"):
        check(loaded(spec).form, registry())


def test_dropout_applies_only_to_attention_weights() -> None:
    """Each weight is dropped or doubled: with one value per row, the output is 0, 1 or 2 shares."""
    attention = Attention(2, 2, 1, 2, 2, bias=False, dropout=0.5).train()
    with torch.no_grad():
        for projection in attention.children():
            nn.init.eye_(projection.weight)
        attention.query.weight.zero_()  # every score is 0, so each weight is 1 / S
    memory = torch.eye(2).repeat(500, 1, 1)

    found = attention(torch.ones(500, 1, 2), memory)

    assert set(found.unique().tolist()) == {0.0, 1.0}
    assert 0.4 < found.mean().item() < 0.6


@pytest.mark.parametrize(
    ("params", "d_k", "d_v"),
    [({}, 4, 4), ({"d_k": 5}, 5, 5), ({"d_v": 3}, 4, 3), ({"d_k": 5, "d_v": 3}, 5, 3)],
)
def test_widths_left_out_follow_from_the_others(params: dict[str, int], d_k: int, d_v: int) -> None:
    """Section 3.2.2: d_k = d_model / heads, and d_v = d_k."""
    written = AttentionParams(heads=2, **params)

    made = ATTENTION.arguments(written, {"d_model": 8, "d_memory": 6})

    assert (made["d_k"], made["d_v"]) == (d_k, d_v)


def test_a_width_not_divisible_by_heads_is_refused_with_help() -> None:
    """The help names the nearest number of heads that divides the width."""
    with pytest.raises(ValueError, match="width 8 is not divisible by 3 heads") as caught:
        ATTENTION.arguments(AttentionParams(heads=3), {"d_model": 8, "d_memory": 8})

    assert caught.value.args[1] == "use 2 heads, or set d_k"


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("mask", [None, MASK], ids=["no padding", "padding"])
def test_no_scale_equals_scaled_queries(mask: Tensor | None, *, causal: bool) -> None:
    """Q k^T = (sqrt(d_k) q) k^T / sqrt(d_k), with d_k = 4."""
    plain = Attention(8, 8, 2, 4, 4, causal=causal, scale="none").double()
    longer = Attention(8, 8, 2, 4, 4, causal=causal).double()
    longer.load_state_dict(plain.state_dict())
    with torch.no_grad():
        for weight in longer.query.parameters():
            weight.mul_(2.0)
    x = torch.randn(2, 5, 8, dtype=torch.float64)

    torch.testing.assert_close(plain(x, mask=mask), longer(x, mask=mask), rtol=0, atol=1e-12)


def drawn_attention(**params: Any) -> Attention:
    """Return attention of two heads whose weights, sinks included, are drawn."""
    attention = Attention(8, 8, 2, 4, 4, **params).double()
    for weight in attention.parameters():
        nn.init.normal_(weight, std=0.5)
    return attention


KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax1": lambda score: score.exp() / (1 + score.exp().sum(-1, keepdim=True)),
    "squared_relu": lambda score: score.clamp(min=0) ** 2,
    "sigmoid": lambda score: 1 / (1 + (-score).exp()),
    "none": lambda score: score,
}


@pytest.mark.parametrize("kind", KINDS)
def test_other_functions_of_scores_weigh_the_keys_that_are_allowed(kind: str) -> None:
    """Of each query, those up to its position that are not padding, and no others."""
    attention = drawn_attention(softmax=kind, causal=True)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    query, key, value = (
        part(x).unflatten(-1, (2, 4)).transpose(1, 2)
        for part in (attention.query, attention.key, attention.value)
    )

    y = attention(x, mask=MASK)

    heads = torch.zeros(2, 2, 5, 4, dtype=torch.float64)
    for row, t in itertools.product(range(2), range(5)):
        keys = [s for s in range(t + 1) if MASK[row, s]]
        scores = query[row, :, t : t + 1] @ key[row][:, keys].transpose(1, 2) / 2
        heads[row, :, t] = (KINDS[kind](scores) @ value[row][:, keys])[:, 0]
    torch.testing.assert_close(y, attention.out(heads.transpose(1, 2).flatten(2)))


def test_sparsemax_of_scores_is_the_nearest_point_of_the_simplex() -> None:
    """The weights add up to 1, and where they are positive, scores exceed them by one number."""
    attention = drawn_attention(softmax="sparsemax")
    x = 2 * torch.randn(2, 5, 8, dtype=torch.float64)

    weights = attention.attention_weights(x, mask=MASK)

    query, key = (
        part(x).unflatten(-1, (2, 4)).transpose(1, 2) for part in (attention.query, attention.key)
    )
    scores = (query @ key.transpose(2, 3) / 2).masked_fill(~MASK[:, None, None], -torch.inf)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 5, dtype=torch.float64))
    positive = weights > 0
    assert 0 < positive.double().mean() < MASK.double().mean()
    threshold = torch.where(positive, scores - weights, -torch.inf).amax(-1, keepdim=True)
    torch.testing.assert_close(weights, (scores - threshold).clamp(min=0))


def test_a_sink_is_a_further_key_whose_value_is_zero() -> None:
    """As in gpt-oss: each head adds exp(sink) to the sum of its softmax."""
    attention = drawn_attention(sinks=True)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    assert attention.sinks is not None

    weights = attention.attention_weights(x, mask=MASK)

    query, key = (
        part(x).unflatten(-1, (2, 4)).transpose(1, 2) for part in (attention.query, attention.key)
    )
    scores = (query @ key.transpose(2, 3) / 2).exp() * MASK[:, None, None]
    total = scores.sum(-1, keepdim=True) + attention.sinks.exp()[:, None, None]
    torch.testing.assert_close(weights, scores / total)


def test_sinks_start_at_zero_which_is_softmax1() -> None:
    """The logit 0 adds 1 to the denominator."""
    with_sinks = drawn_attention(sinks=True)
    other = drawn_attention(softmax="softmax1")
    weights = {k: v for k, v in with_sinks.state_dict().items() if k != "sinks"}
    other.load_state_dict(weights)
    assert with_sinks.sinks is not None
    with_sinks.initialize(torch.Generator().manual_seed(1))
    other.initialize(torch.Generator().manual_seed(1))
    x = torch.randn(2, 5, 8, dtype=torch.float64)

    assert not with_sinks.sinks.any()
    torch.testing.assert_close(with_sinks(x), other(x))


def test_sinks_without_a_softmax_are_refused() -> None:
    """They are part of its sum."""
    params = {"heads": 2, "sinks": True, "softmax": "sigmoid"}
    spec = spec_of("attention@1", {"x": "f[B T 8]"}, **params)

    (finding,) = findings_of(spec)

    assert (finding.code, finding.at) == ("P08", "/nodes/node/params/sinks")


def test_a_width_of_the_output_is_that_of_the_map() -> None:
    """It is checked like any other width."""
    spec = spec_of("attention@1", {"x": "f[B T 8]"}, heads=2, d_out=6)

    assert type_of(spec) == "f[B T 6]"
    assert build(graph_of(spec)).get_parameter("node.out.weight").shape == (6, 8)
