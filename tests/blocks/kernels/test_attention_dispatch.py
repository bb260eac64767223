"""Attention dispatch: all backends compute the same function."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from weft.blocks.kernels.attention import attend
from weft.blocks.kernels.attention_backends import AttentionCall, plain_attend

MASK = torch.tensor([[True, False, True, True], [True, True, True, False]])


def three(length: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys of width 5, and values of width 3, in float64."""
    query = torch.randn(2, 3, length, 5, dtype=torch.float64)
    key = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    return query, key, torch.randn(2, 3, 4, 3, dtype=torch.float64)


@pytest.mark.parametrize("masked", [False, True], ids=["no mask", "mask"])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_two_products_equal_the_fused_kernel(*, masked: bool, causal: bool) -> None:
    """The plain backend, used in bfloat16 on the CPU, computes the same function."""
    query, key, value = three()
    mask = MASK[:, None, None, :] if masked else None

    found = plain_attend(AttentionCall(query, key, value, mask, causal=causal))

    past = torch.ones(4, 4, dtype=torch.bool).tril()
    seen = past if causal else torch.ones(4, 4, dtype=torch.bool)
    both = seen if mask is None else seen & mask
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=both)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        attend(query, key, value, MASK if masked else None, causal=causal),
        expected,
        rtol=0,
        atol=1e-12,
    )


def test_scores_are_divided_by_the_root_of_the_width() -> None:
    """Section 3.2.1, one query and two keys of width 4: scores 8 / 2 and 0 / 2."""
    query = torch.tensor([2.0, 2.0, 0.0, 0.0]).view(1, 1, 1, 4)
    key = torch.tensor([[2.0, 2.0, 0.0, 0.0], [0.0, 0.0, 3.0, 3.0]]).view(1, 1, 2, 4)
    value = torch.tensor([[1.0], [0.0]]).view(1, 1, 2, 1)

    share = math.exp(4) / (math.exp(4) + 1)
    for found in (
        attend(query, key, value),
        plain_attend(AttentionCall(query, key, value, None)),
    ):
        assert found.item() == pytest.approx(share, rel=1e-6)


def test_scores_without_a_scale_are_the_dot_products() -> None:
    """The same two keys: scores 8 and 0."""
    query = torch.tensor([2.0, 2.0, 0.0, 0.0]).view(1, 1, 1, 4)
    key = torch.tensor([[2.0, 2.0, 0.0, 0.0], [0.0, 0.0, 3.0, 3.0]]).view(1, 1, 2, 4)
    value = torch.tensor([[1.0], [0.0]]).view(1, 1, 2, 1)

    share = math.exp(8) / (math.exp(8) + 1)
    for found in (
        attend(query, key, value, scale=1.0),
        attend(query, key, value, torch.ones(1, 2, dtype=torch.bool), scale=1.0),
        plain_attend(AttentionCall(query, key, value, None, scale=1.0)),
    ):
        assert found.item() == pytest.approx(share, rel=1e-6)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_a_row_that_may_read_nothing_gives_zeros(*, causal: bool) -> None:
    """Both backends give zeros and finite gradients, never NaN."""
    mask = torch.tensor([[False] * 4, [False, True, True, True]])
    for way in (attend, _plainly):
        query, key, value = (tensor.requires_grad_() for tensor in three())

        found = way(query, key, value, mask, causal=causal)
        found.sum().backward()

        assert (found[0] == 0).all()
        assert (found[1, :, 0] == 0).all() == causal
        assert all(tensor.grad.isfinite().all() for tensor in (query, key, value))


def test_the_plain_backend_agrees_in_half_precision() -> None:
    """bfloat16 has 8 bits, so weighted sums of values near 1 agree to about 1 %."""
    query, key, value = three()

    found = attend(query.bfloat16(), key.bfloat16(), value.bfloat16(), MASK, causal=True)

    assert found.dtype == torch.bfloat16
    expected = attend(query, key, value, MASK, causal=True)
    torch.testing.assert_close(found.double(), expected, rtol=0.03, atol=0.03)


@pytest.mark.parametrize("way", ["fused", "plain"])
def test_dropout_keeps_the_mean(way: str) -> None:
    """Weights are 1/4 each, dropped half of the time and doubled otherwise: same mean."""
    query, key = torch.zeros(2, 1, 1, 2000, 4)
    key, value = key[:, :, :4], torch.eye(4).view(1, 1, 4, 4)

    ours = attend if way == "fused" else _plainly
    found = ours(query, key, value, None, dropout=0.5)

    assert set(found.unique().tolist()) == {0.0, 0.5}
    # 8000 draws of 0 or 1/2: the standard deviation of the mean is 0.25 / sqrt(8000) = 0.0028.
    assert found.mean().item() == pytest.approx(0.25, abs=5 * 0.0028)


def _plainly(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    mask = None if mask is None else mask[:, None, None, :]
    return plain_attend(AttentionCall(query, key, value, mask, causal=causal, dropout=dropout))
