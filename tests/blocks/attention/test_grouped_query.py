"""Grouped-query attention against attention with repeated key and value heads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.blocks.attention.masks_module import Window
from weft.blocks.attention.multi_head import ATTENTION, AttentionParams
from weft.blocks.attention.multi_head_module import Attention
from weft.blocks.kernels.decode_state import Capacity
from weft.blocks.position.rotary_module import Rotary

MASK = torch.tensor([[True, True, False, True, False], [True, False, True, True, True]])
HOW = [
    {},
    {"causal": True},
    {"mask": Window(1)},
    {"mask": Window(2), "causal": True, "position": Rotary(4)},
]
"""Attention options; each is tested with and without padding."""


def pair(kv_heads: int, d_memory: int = 8, **how: Any) -> tuple[Attention, Attention]:
    """Return grouped attention with 6 heads, and attention with repeated keys and values."""
    ours = Attention(8, d_memory, 6, 4, 3, kv_heads=kv_heads, **how).double()
    for weight in ours.parameters():
        nn.init.normal_(weight, std=0.5)
    plain = Attention(8, d_memory, 6, 4, 3, **how).double()
    plain.load_state_dict(ours.state_dict() | repeated(ours))
    return ours, plain


def repeated(attention: Attention) -> dict[str, Tensor]:
    """Return the key and value maps with each head repeated for every query head that uses it."""
    times = attention.heads // attention.kv_heads
    found = {}
    for name, width in (("key", 4), ("value", 3)):
        for which in ("weight", "bias"):
            rows = getattr(getattr(attention, name), which).detach()
            heads = rows.unflatten(0, (attention.kv_heads, width))
            found[f"{name}.{which}"] = heads.repeat_interleave(times, 0).flatten(0, 1)
    return found


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
@pytest.mark.parametrize("mask", [None, MASK], ids=["no padding", "padding"])
@pytest.mark.parametrize("how", HOW, ids=str)
def test_is_attention_with_repeated_keys(
    kv_heads: int, mask: Tensor | None, how: dict[str, Any]
) -> None:
    """Head i uses the keys of head i * G // H: same output, and the same gradient of x."""
    ours, plain = pair(kv_heads, **how)
    x = torch.randn(2, 5, 8, dtype=torch.float64, requires_grad=True)
    pull = torch.randn(2, 5, 8, dtype=torch.float64)

    found, expected = ours(x, mask=mask), plain(x, mask=mask)
    (gradient,) = torch.autograd.grad((found * pull).sum(), x)
    (expected_gradient,) = torch.autograd.grad((expected * pull).sum(), x)

    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-11)


@pytest.mark.parametrize("mask", [None, MASK], ids=["no padding", "padding"])
@pytest.mark.parametrize("how", HOW, ids=str)
def test_half_precision_groups_as_full_precision_does(
    mask: Tensor | None, how: dict[str, Any]
) -> None:
    """The plain backend, used in bfloat16 on the CPU, shares keys too."""
    ours, plain = pair(2, **how)
    x = torch.randn(2, 5, 8)

    found = ours.bfloat16()(x.bfloat16(), mask=mask)

    expected = plain.float()(x, mask=mask)
    scale = expected.abs().max().item()
    torch.testing.assert_close(found.float(), expected, rtol=0.03, atol=0.03 * scale)


@pytest.mark.parametrize("kv_heads", [1, 3, 6])
def test_a_memory_is_read_in_groups_too(kv_heads: int) -> None:
    """A memory of a different width and length, with padding."""
    ours, plain = pair(kv_heads, 6)
    x, memory = (
        torch.randn(2, 3, 8, dtype=torch.float64),
        torch.randn(2, 5, 6, dtype=torch.float64),
    )

    torch.testing.assert_close(ours(x, memory, MASK), plain(x, memory, MASK), rtol=0, atol=1e-12)


def test_with_as_many_key_heads_it_is_attention_bit_for_bit() -> None:
    """kv_heads = heads takes the same code path."""
    ours, plain = pair(6, causal=True)
    x = torch.randn(2, 5, 8, dtype=torch.float64)

    assert torch.equal(ours(x), plain(x))


@pytest.mark.parametrize("crossed", [False, True], ids=["itself", "a memory"])
def test_the_cache_holds_only_the_shared_heads(*, crossed: bool) -> None:
    """The cache has a third of the size if six heads share two key heads."""
    ours, _ = pair(2, causal=True)
    capacity = Capacity(2, 3, 7, torch.float64, torch.device("cpu"))

    state = ours.begin(capacity, torch.randn(2, 5, 8, dtype=torch.float64) if crossed else None)

    state_tensors = state.fixed if crossed else state.appended
    shapes = {name: tuple(tensor.shape) for name, tensor in state_tensors.items()}
    rows, length = (2, 5) if crossed else (6, 7)
    assert shapes == {"key": (rows, 2, length, 4), "value": (rows, 2, length, 3)}


def test_indivisible_head_counts_are_refused_with_help() -> None:
    """The help names the nearest divisor."""
    params = AttentionParams(heads=8, kv_heads=5)

    with pytest.raises(
        ValueError, match="8 heads are not divisible by 5 key and value heads"
    ) as caught:
        ATTENTION.arguments(params, {"d_model": 16, "d_memory": 16})

    assert caught.value.args[1] == "use 4 kv_heads"
