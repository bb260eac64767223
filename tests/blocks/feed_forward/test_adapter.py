"""Adapters, by hand."""

from __future__ import annotations

import torch
from weft.blocks.feed_forward.adapter_module import Adapter

X = torch.arange(2 * 6 * 4.0).view(2, 6, 4)


def test_a_fresh_adapter_is_almost_the_identity() -> None:
    """Section 3.6 of the paper: deviation 0.01, truncated at twice that; then by hand."""
    block = Adapter(4, 2, "relu")
    with torch.no_grad():
        block.initialize(torch.Generator().manual_seed(1))
        torch.testing.assert_close(block(X), X, rtol=2e-2, atol=1e-2)
        assert 0 < block.inner.weight.abs().max() <= 0.02

        block.inner.weight.fill_(1.0)
        block.outer.weight.fill_(2.0)
    x = torch.tensor([1.0, 2.0, 3.0, -1.0])
    assert block(x).tolist() == [21.0, 22.0, 23.0, 19.0]  # 2 features of relu(5), times 2
