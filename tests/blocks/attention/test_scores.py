"""Attention weights, biases by wire, and head gates."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from weft.blocks.attention.additive_module import AdditiveAttention
from weft.blocks.attention.masks_module import Window
from weft.blocks.attention.multi_head_module import Attention
from weft.blocks.attention.scores_module import HeadGates, TalkingHeads
from weft.blocks.kernels.attention import attend
from weft.blocks.kernels.attention_backends import AttentionCall, plain_attend
from weft.blocks.position.relative_module import Alibi, RelativeBias, RelativeKeys
from weft.blocks.position.rotary_module import Rotary
from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse
from weft.specs.load import loaded

MASK = torch.tensor([[1, 1, 0, 1, 0, 1], [0, 1, 1, 1, 1, 0]]).bool()
NOTHING = torch.tensor([[1, 1, 0, 1, 0, 1], [0, 0, 0, 0, 0, 0]]).bool()
GROUPS = pytest.mark.parametrize("kv_heads", [1, 2, 4])


def attention(kv_heads: int = 4, **how: Any) -> Attention:
    """Return attention with four heads of width 3 and random weights."""
    made = Attention(8, 8, 4, 3, 2, kv_heads=kv_heads, **how).double().eval()
    for weight in made.parameters():
        nn.init.normal_(weight, std=0.5)
    return made


@torch.no_grad()
def by_loops(block: Attention, x: Tensor, mask: Tensor, bias: Tensor) -> Tensor:
    """Return the weights [B, H, T, S] of self-attention, element by element."""
    query = block.query(x).unflatten(-1, (4, 3))
    key = block.key(x).unflatten(-1, (block.kv_heads, 3))
    weight = torch.zeros(x.size(0), 4, x.size(1), x.size(1), dtype=x.dtype)
    for b, h, t in ((b, h, t) for b in range(2) for h in range(4) for t in range(6)):
        of = h * block.kv_heads // 4
        share = {
            s: math.exp(float(query[b, t, h] @ key[b, s, of]) / math.sqrt(3) + float(bias[b, t, s]))
            for s in range(t + 1 if block.causal else 6)
            if mask[b, s]
        }
        total = sum(share.values())
        for s, part in share.items():
            weight[b, h, t, s] = part / total if total else 0.0
    return weight


class Bounded(nn.Module):
    """Bounds values smoothly, as Gemma 2 bounds scores."""

    elementwise = True

    def __init__(self, bound: float) -> None:
        """Set the bound."""
        super().__init__()
        self.bound = bound

    def forward(self, x: Tensor) -> Tensor:
        """Return values between the bounds."""
        return torch.tanh(x / self.bound) * self.bound


@GROUPS
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_weights_equal_the_definition(kv_heads: int, *, causal: bool) -> None:
    """Softmax in loops, with padding, a bias that masks some pairs, and shared keys."""
    block = attention(kv_heads, causal=causal)
    x, bias = torch.randn(2, 6, 8).double(), torch.randn(2, 6, 6).double()
    bias[:, 3:, 1] = -math.inf

    expected = by_loops(block, x, MASK, bias)
    found = block.attention_weights(x, mask=MASK, bias=bias)

    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    value = block.value(x).unflatten(-1, (kv_heads, 2)).repeat_interleave(4 // kv_heads, 2)
    read = torch.einsum("bhts,bshv->bthv", expected, value).flatten(2)
    given = block(x, mask=MASK, bias=bias)
    torch.testing.assert_close(given, block.out(read), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"position": Alibi(4)},
        {"position": RelativeBias(4)},
        {"position": RelativeKeys(4)},
        {"position": Rotary(4)},
        {"score": Bounded(2.0), "position": Alibi(4)},
        {"score": TalkingHeads(4), "after_softmax": TalkingHeads(4)},
        {"after_query": Bounded(1.0), "after_key": Bounded(0.5)},
    ],
    ids=lambda parts: ", ".join(type(part).__name__ for part in parts.values()),
)
def test_returned_weights_are_the_weights_used(parts: dict[str, nn.Module]) -> None:
    """With every kind of part, the weighted values equal the output."""
    block = Attention(8, 8, 4, 4, 2, kv_heads=2, mask=Window(3), **parts).double().eval()
    for weight in block.parameters():
        nn.init.normal_(weight, std=0.5)
    x = torch.randn(2, 6, 8, dtype=torch.float64)

    weights = block.attention_weights(x, mask=MASK)

    value = block.value(x).unflatten(-1, (2, 2)).repeat_interleave(2, 2)
    read = torch.einsum("bhts,bshv->bthv", weights, value).flatten(2)
    torch.testing.assert_close(block(x, mask=MASK), block.out(read), rtol=0, atol=1e-12)


def test_returned_additive_weights_are_the_weights_used() -> None:
    """The weighted memory equals the output; padding has no weight."""
    block = AdditiveAttention(8, 6, 5).double()
    x, memory = torch.randn(2, 3, 8).double(), torch.randn(2, 6, 6).double()

    weights = block.attention_weights(x, memory, NOTHING)

    assert weights.shape == (2, 1, 3, 6)
    assert not weights[:, 0].masked_select(~NOTHING[:, None]).any()
    torch.testing.assert_close(weights[:, 0] @ memory, block(x, memory, NOTHING))


def bias_of(mask: Tensor) -> Tensor:
    """Return the bias [2, 6, 6] that hides what a mask [2, 6] hides."""
    bias = torch.zeros(2, 6, 6, dtype=torch.float64)
    return bias.masked_fill(~mask[:, None], -torch.inf)


@GROUPS
@pytest.mark.parametrize("mask", [MASK, NOTHING], ids=["padding", "a row without any"])
def test_a_mask_as_a_bias_hides_the_same(mask: Tensor, kv_heads: int) -> None:
    """Gradients are also finite for fully masked rows."""
    block = attention(kv_heads)
    x = torch.randn(2, 6, 8, dtype=torch.float64, requires_grad=True)

    masked = block(x, mask=mask)
    biased = block(x, bias=bias_of(mask))

    torch.testing.assert_close(biased, masked, rtol=0, atol=1e-12)
    gradient = torch.autograd.grad(biased.square().sum(), x)[0]
    expected = torch.autograd.grad(masked.square().sum(), x)[0]
    torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-12)


def test_two_products_mask_like_the_fused_kernel() -> None:
    """A bias of -inf in a complete row gives zeros and zero gradients, not NaN."""
    query, key, value = torch.randn(3, 2, 4, 6, 3, dtype=torch.float64)
    query.requires_grad_()
    bias = bias_of(NOTHING)[:, None]

    plain = plain_attend(AttentionCall(query, key, value, None, bias=bias))

    torch.testing.assert_close(plain, attend(query, key, value, NOTHING), rtol=0, atol=1e-12)
    gradient = torch.autograd.grad(plain.square().sum(), query)[0]
    assert gradient[0].any()
    assert not gradient[1].any()


@GROUPS
def test_a_bias_is_torchs_float_mask(kv_heads: int) -> None:
    """One bias for all heads, over a memory of another length."""
    block = attention(kv_heads)
    x, memory = torch.randn(2, 6, 8).double(), torch.randn(2, 5, 8).double()
    bias = torch.randn(2, 6, 5, dtype=torch.float64)

    query, key, value = (
        part(of).unflatten(-1, (heads, -1)).transpose(1, 2)
        for part, of, heads in (
            (block.query, x, 4),
            (block.key, memory, kv_heads),
            (block.value, memory, kv_heads),
        )
    )
    read = F.scaled_dot_product_attention(
        query, key, value, attn_mask=bias[:, None], enable_gqa=True
    )
    expected = block.out(read.transpose(1, 2).flatten(2))
    torch.testing.assert_close(block(x, memory, bias=bias), expected, rtol=0, atol=1e-12)


def test_a_gate_of_one_changes_nothing_and_of_zero_silences_its_head() -> None:
    """Section 2.3 of Michel et al.: the output of head h is multiplied by xi_h."""
    gates = HeadGates(4)
    gated, plain = attention(output=gates), attention()
    plain.load_state_dict({k: v for k, v in gated.state_dict().items() if "output" not in k})
    x = torch.randn(2, 6, 8, dtype=torch.float64)

    gates.initialize(torch.Generator())
    assert torch.equal(gated(x), plain(x))
    with torch.no_grad():
        gates.weight.copy_(torch.tensor([1.0, 0.0, 0.5, 1.0]))
        plain.out.weight[:, 2:4] = 0.0
        plain.out.weight[:, 4:6] *= 0.5
    torch.testing.assert_close(gated(x), plain(x), rtol=0, atol=1e-12)


def test_a_mask_for_a_bias_names_the_adapter() -> None:
    """The finding suggests the adapter block as a fix."""
    spec: dict[str, Any] = {
        "format": 1,
        "name": "one",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]", "mask": "mask[B T]"},
        "outputs": {"y": "read.y"},
        "nodes": {
            "read": {
                "use": "attention@1",
                "in": {"x": "x", "bias": "mask"},
                "params": {"heads": 2},
            }
        },
    }

    _, findings = analyse(loaded(spec).form, registry())

    assert [f.code for f in findings] == ["T02"]
    assert "where(mask, 0, -inf)" in findings[0].help


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_one_graph_serves_every_size(compiles_once: Callable[[nn.Module], None]) -> None:
    """Compiled without graph breaks, and not recompiled for other batch sizes or lengths."""
    compiles_once(attention(2, output=HeadGates(4), score=Bounded(5.0)))
