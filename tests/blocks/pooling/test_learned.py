"""Learned arrays and weighted sums, products and adapters, by hand."""

from __future__ import annotations

import torch
from weft.blocks.feed_forward.adapter_module import Adapter
from weft.blocks.pooling.learned_module import LearnedArray, WeightedSum
from weft.runtime.codegen.build import build
from weft.specs.load import loaded

X = torch.arange(2 * 6 * 4.0).view(2, 6, 4)


def test_a_learned_array_is_the_same_in_every_row() -> None:
    """Only the number of rows of the other value matters."""
    block = LearnedArray(3, 5)
    with torch.no_grad():
        block.initialize(torch.Generator().manual_seed(1))

    y = block(X)

    assert y.shape == (2, 3, 5)
    assert torch.equal(y[0], block.weight)
    assert torch.equal(y[1], block.weight)


def test_a_weighted_sum_by_hand() -> None:
    """Weights log 1 and log 3 give 1/4 and 3/4; the gain doubles the sum."""
    block = WeightedSum(2)
    with torch.no_grad():
        block.weight.copy_(torch.tensor([1.0, 3.0]).log())
        assert block.gain is not None
        block.gain.fill_(2.0)
    x = torch.tensor([4.0, 8.0]).view(2, 1, 1, 1)

    torch.testing.assert_close(block(x), torch.tensor([[[14.0]]]))


def test_a_weighted_sum_reads_what_a_repeat_collects() -> None:
    """The outputs of all copies, stacked along a new first axis; at first, their mean."""
    spec = {
        "format": 1,
        "name": "elmo",
        "params": {"layers": 3},
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 4]"},
        "outputs": {"y": "sum.y"},
        "blocks": {
            "layer": {
                "inputs": {"x": "f[B T 4]"},
                "outputs": {"x": "twice.y", "each": "twice.y"},
                "nodes": {
                    "twice": {
                        "use": "elementwise@1",
                        "in": {"x": "x"},
                        "params": {"y": "by * x", "values": {"by": 2}},
                    }
                },
            }
        },
        "nodes": {
            "stack": {
                "repeat": "=layers",
                "block": "layer",
                "carry": ["x"],
                "collect": ["each"],
                "in": {"x": "x"},
            },
            "sum": {
                "use": "weighted_sum@1",
                "in": {"x": "stack.each"},
                "params": {"layers": "=layers"},
            },
        },
    }

    torch.testing.assert_close(build(loaded(spec))(x=X)["y"], X * (2 + 4 + 8) / 3)


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
