"""Additive attention against a loop over queries and positions, as in the paper."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from weft.blocks.attention.additive_module import AdditiveAttention

MASK = torch.tensor([[True, True, False, True, False], [True, False, True, True, True]])


def by_hand(ours: AdditiveAttention, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
    """Equations 5 and 6, for one query and one position at a time."""
    w, u, v = ours.query.weight, ours.key.weight, ours.score.weight[0]
    y = torch.zeros(*x.shape[:2], memory.size(2), dtype=x.dtype)
    for b in range(x.size(0)):
        for t in range(x.size(1)):
            read = [s for s in range(memory.size(1)) if mask[b, s]]
            energy = [math.exp(v @ torch.tanh(w @ x[b, t] + u @ memory[b, s])) for s in read]
            for e, s in zip(energy, read, strict=True):
                y[b, t] += e / sum(energy) * memory[b, s]
    return y


@pytest.mark.parametrize("masked", [False, True], ids=["no padding", "padding"])
def test_it_is_the_papers(*, masked: bool) -> None:
    """Weights exp(e) / sum exp(e) over the unmasked positions of the memory."""
    ours = AdditiveAttention(8, 6, 5).double()
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    memory = torch.randn(2, 5, 6, dtype=torch.float64)

    with torch.no_grad():
        found = ours(x, memory, MASK if masked else None)
        expected = by_hand(ours, x, memory, MASK if masked else torch.ones_like(MASK))

    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_a_fully_masked_row_attends_to_zeros() -> None:
    """A sentence that is all padding gives no NaN, neither forward nor backward."""
    ours = AdditiveAttention(4, 4, 3)
    x, memory = torch.randn(2, 2, 3, 4).requires_grad_()
    mask = torch.tensor([[False, False, False], [True, True, False]])

    found = ours(x, memory, mask)
    found.sum().backward()

    assert found[0].abs().max() == 0
    assert found[1].abs().min() > 0
    assert all(w.grad is not None and w.grad.isfinite().all() for w in ours.parameters())


def test_autocast_keeps_the_precision_it_asks_for() -> None:
    """The softmax is computed in float32, the weighted sum in the autocast dtype."""
    ours = AdditiveAttention(8, 6, 5)
    x, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 6)

    with torch.autocast("cpu", torch.bfloat16):
        found = ours(x, memory.bfloat16(), MASK)

    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), ours(x, memory, MASK), rtol=0.05, atol=0.02)
