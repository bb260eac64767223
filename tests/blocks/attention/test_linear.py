"""Linear attention against explicit weights, and against the recurrence of the paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.blocks.attention.linear import LINEAR_ATTENTION, LinearAttentionParams
from weft.blocks.attention.linear_module import LinearAttention
from weft.blocks.kernels.decode_state import Capacity
from weft.blocks.registry import registry

MASK = torch.tensor([[1, 1, 0, 1, 0, 1, 1], [0, 0, 1, 1, 1, 1, 0]]).bool()
EPS = 1e-6


def attention(**how: Any) -> LinearAttention:
    """Return attention with two heads and random weights."""
    made = LinearAttention(8, 8, 2, 4, 3, **how).double().eval()
    for weight in made.parameters():
        nn.init.normal_(weight, std=0.5)
    return made


def parts(block: LinearAttention, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return phi(q), phi(k) and v, each [B, H, T, .]; phi(z) is z + 1 above 0, otherwise e^z."""

    def phi(z: Tensor) -> Tensor:
        return torch.where(z > 0, z + 1, z.exp())

    query, key, value = (
        part(of).unflatten(-1, (2, -1)).transpose(1, 2)
        for part, of in ((block.query, x), (block.key, memory), (block.value, memory))
    )
    return phi(query), phi(key), value


@pytest.mark.parametrize("mask", [None, MASK], ids=["no padding", "padding"])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64])
def test_it_is_attention_with_another_kernel(
    chunk: int, mask: Tensor | None, *, causal: bool
) -> None:
    """Equation 4: weights phi(q) phi(k), over all or earlier positions, divided by their sum."""
    block = attention(causal=causal, chunk=chunk)
    x = torch.randn(2, 7, 8, dtype=torch.float64)

    found = block(x, mask=mask)

    query, key, value = parts(block, x, x)
    weight = torch.einsum("bhtk,bhsk->bhts", query, key)
    if causal:
        weight = weight.tril()
    if mask is not None:
        weight = weight * mask[:, None, None]
    read = weight @ value / (weight.sum(-1, keepdim=True) + EPS)
    expected = block.out(read.transpose(1, 2).flatten(2))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    shown = weight / (weight.sum(-1, keepdim=True) + EPS)
    torch.testing.assert_close(block.attention_weights(x, mask=mask), shown, rtol=0, atol=1e-12)


def test_causal_is_the_recurrence_of_two_sums() -> None:
    """Equations 16 to 20: s and z grow by one position at a time, as does the decoding state."""
    block = attention(causal=True, chunk=3)
    x = torch.randn(2, 7, 8, dtype=torch.float64)
    query, key, value = parts(block, x, x)
    s, z = torch.zeros(2, 2, 4, 3).double(), torch.zeros(2, 2, 4).double()
    state = block.begin(Capacity(2, 1, 7, torch.float64, torch.device("cpu")))
    whole = block(x)

    for t in range(7):
        s = s + key[:, :, t, :, None] * value[:, :, t, None, :]
        z = z + key[:, :, t]
        above = torch.einsum("bhk,bhkv->bhv", query[:, :, t], s)
        read = above / (torch.einsum("bhk,bhk->bh", query[:, :, t], z)[..., None] + EPS)

        stepped = block.step(x[:, t : t + 1], state=state, position=t)

        expected = block.out(read.flatten(1))
        torch.testing.assert_close(stepped[:, 0], expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(whole[:, t], expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(state.carried["sum"][..., :-1], s)
        torch.testing.assert_close(state.carried["sum"][..., -1], z)


def test_a_memory_is_summed_once_and_a_masked_row_gives_zeros() -> None:
    """Beams of a sentence share one sum; a fully masked row gives zeros before the projection."""
    block = attention()
    x, memory = torch.randn(4, 1, 8).double(), torch.randn(2, 7, 8).double()
    mask = MASK & torch.tensor([[True], [False]])
    capacity = Capacity(2, 2, 1, torch.float64, torch.device("cpu"))

    state = block.begin(capacity, memory, mask)
    found = block.step(x, state=state, position=0)

    spread = memory.repeat_interleave(2, 0), mask.repeat_interleave(2, 0)
    torch.testing.assert_close(found, block(x, *spread), rtol=0, atol=1e-12)
    torch.testing.assert_close(found[2:, 0], block.out.bias.expand(2, -1))
    assert state.fixed["sum"].shape == (2, 2, 4, 4)


@pytest.mark.integration
def test_sums_in_half_precision_do_not_stop_growing() -> None:
    """With 8 bits, 256 + 1 is 256; decoding sums have 24, so the mean of ones and threes is 2."""
    block = attention(causal=True).bfloat16()
    for linear in (block.query, block.key, block.value, block.out):
        nn.init.zeros_(linear.weight)
        nn.init.zeros_(linear.bias)
    nn.init.ones_(block.out.weight)
    capacity = Capacity(1, 1, 1, torch.bfloat16, torch.device("cpu"))
    state = block.begin(capacity)

    for t in range(1200):
        nn.init.constant_(block.value.bias, 1.0 if t % 2 else 3.0)
        last = block.step(torch.zeros(1, 1, 8).bfloat16(), state=state, position=t)

    # phi(0) = 1 for 4 keys; the output map adds up 6 values of 2.
    assert last[0, 0, 0].item() == pytest.approx(12.0, rel=0.01)


def test_an_indivisible_width_is_refused_with_help() -> None:
    """The help names the nearest number of heads that divides the width."""
    with pytest.raises(ValueError, match="width 8 is not divisible by 3 heads") as caught:
        LINEAR_ATTENTION.arguments(LinearAttentionParams(heads=3), {"d_model": 8})

    assert caught.value.args[1] == "use 2 heads, or set d_k"
    assert registry().get("linear_attention@1") is LINEAR_ATTENTION


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_one_graph_serves_every_size(
    compiles_once: Callable[[nn.Module], None], *, causal: bool
) -> None:
    """Compiled without graph breaks, and not recompiled for other batch sizes or lengths."""
    compiles_once(attention(causal=causal, chunk=4))
