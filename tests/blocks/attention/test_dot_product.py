"""Dot-product attention against a loop over positions."""

from __future__ import annotations

import numpy as np
import torch
from weft.blocks.attention.dot_product_module import DotAttention
from weft.blocks.kernels.decode_state import Capacity


def test_it_equals_a_loop_over_queries() -> None:
    """Weights are the softmax over unmasked positions; the gain is the root of their number."""
    rng = np.random.default_rng(1)
    query, key, value = (rng.normal(size=(2, n, d)) for n, d in ((3, 4), (5, 4), (5, 6)))
    mask = np.array([[True, True, False, True, False], [True] * 5])

    wanted = np.zeros((2, 3, 6))
    for b in range(2):
        unmasked = np.flatnonzero(mask[b])
        for t in range(3):
            weight = np.exp([query[b, t] @ key[b, j] for j in unmasked])
            mean = (
                sum(w * value[b, j] for w, j in zip(weight, unmasked, strict=True)) / weight.sum()
            )
            wanted[b, t] = mean * np.sqrt(len(unmasked))
    given = DotAttention(gain="sqrt_length")(*map(torch.tensor, (query, key, value, mask)))

    torch.testing.assert_close(given.numpy(), wanted)


def test_sqrt_is_torchs_own() -> None:
    """Scores are divided by sqrt(d), the output is not scaled."""
    query, key, value = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6)

    wanted = torch.nn.functional.scaled_dot_product_attention(query, key, value)

    torch.testing.assert_close(DotAttention(scale="sqrt")(query, key, value), wanted)


def test_keys_without_values_are_the_values_with_another_scale() -> None:
    """All four heads read one key of width 3, whose scores are multiplied by 0.3."""
    query, key = torch.randn(2, 5, 12), torch.randn(2, 5, 3)

    heads = query.unflatten(-1, (4, 3)).transpose(1, 2)
    wanted = torch.nn.functional.scaled_dot_product_attention(
        heads, key[:, None], key[:, None], is_causal=True, scale=0.3
    )
    block = DotAttention(0.3, heads=4, kv_heads=1, causal=True, d_key=3)

    torch.testing.assert_close(block(query, key), wanted.transpose(1, 2).flatten(2))


def test_keys_that_are_the_values_are_stored_once() -> None:
    """In decoding, by the number of elements."""
    block = DotAttention(0.3, heads=4, kv_heads=1, causal=True, d_key=3)

    state = block.begin(Capacity(2, 1, 7, torch.float32, torch.device("cpu")))

    assert {name: tuple(x.shape) for name, x in state.appended.items()} == {"key": (2, 1, 7, 3)}


def test_grouped_values_may_be_narrower_than_keys() -> None:
    """Two heads of queries read each of two heads of keys of width 3 and values of width 2."""
    query, key, value = torch.randn(2, 5, 12), torch.randn(2, 4, 6), torch.randn(2, 4, 4)
    query_, key_ = (x.unflatten(-1, (-1, 3)).transpose(1, 2) for x in (query, key))
    value_ = value.unflatten(-1, (-1, 2)).transpose(1, 2)

    wanted = torch.nn.functional.scaled_dot_product_attention(query_, key_, value_, enable_gqa=True)

    y = DotAttention("sqrt", heads=4, kv_heads=2)(query, key, value)
    torch.testing.assert_close(y, wanted.transpose(1, 2).flatten(2))


def test_grouped_causal_heads_are_torchs_own() -> None:
    """Two heads of queries read each of two heads of keys and values."""
    query, key, value = torch.randn(2, 5, 12), torch.randn(2, 5, 6), torch.randn(2, 5, 6)
    parts = (x.unflatten(-1, (-1, 3)).transpose(1, 2) for x in (query, key, value))

    wanted = torch.nn.functional.scaled_dot_product_attention(
        *parts, is_causal=True, enable_gqa=True
    )
    block = DotAttention("sqrt", heads=4, kv_heads=2, causal=True, d_key=6, d_value=6)

    torch.testing.assert_close(block(query, key, value), wanted.transpose(1, 2).flatten(2))
