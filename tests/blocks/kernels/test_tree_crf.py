"""Sums over trees compared with an enumeration of all binary trees."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from weft.blocks.kernels.losses.tree_crf import log_partition, marginals

from ..binary_trees import trees

LENGTHS = torch.tensor([6, 1, 4, 2, 5, 3])
"""Words of the sentences of one batch."""


def weights() -> Tensor:
    """Return random span weights; entries that are not spans are large, and must be ignored."""
    generator = torch.Generator().manual_seed(1)
    weight_BNN = 3 * torch.randn(len(LENGTHS), 6, 6, generator=generator)
    return weight_BNN.where(torch.ones(6, 6, dtype=torch.bool).triu(), torch.tensor(99.0))


def weigh(tree: frozenset[tuple[int, int]], weight_NN: Tensor) -> float:
    """Return the weight of a tree."""
    return sum(weight_NN[span].item() for span in tree)


def test_the_number_of_trees_is_the_catalan_number() -> None:
    """With zero weights the sum counts trees, which shows that the enumeration is complete."""
    counts = log_partition(torch.zeros(len(LENGTHS), 6, 6), LENGTHS).exp()

    catalan = [math.comb(2 * n, n) / (n + 1) for n in (LENGTHS - 1).tolist()]
    torch.testing.assert_close(counts, torch.tensor(catalan))
    assert [len(list(trees(0, n - 1))) for n in LENGTHS.tolist()] == catalan


def test_the_sum_is_over_all_trees() -> None:
    """Of each sentence over its own words; entries beyond its length are ignored."""
    weight_BNN = weights()

    total_B = log_partition(weight_BNN, LENGTHS)

    wanted = [
        math.log(sum(math.exp(weigh(tree, weight_BNN[row])) for tree in trees(0, length - 1)))
        for row, length in enumerate(LENGTHS.tolist())
    ]
    torch.testing.assert_close(total_B, torch.tensor(wanted))


def test_marginals_are_shares_of_trees() -> None:
    """The marginal of a span is the summed probability of the trees that contain it."""
    weight_BNN = weights()

    probable_BNN = marginals(weight_BNN, LENGTHS)

    for row, length in enumerate(LENGTHS.tolist()):
        shares = {t: math.exp(weigh(t, weight_BNN[row])) for t in trees(0, length - 1)}
        wanted_NN = torch.zeros(6, 6)
        for tree, share in shares.items():
            for span in tree:
                wanted_NN[span] += share / sum(shares.values())
        torch.testing.assert_close(probable_BNN[row], wanted_NN, atol=1e-5, rtol=1e-4)


def test_the_gradient_is_scaled_by_the_upstream_gradient() -> None:
    """Each sentence's gradient is scaled by its own upstream gradient."""
    weight_BNN = weights().requires_grad_()
    scale_B = torch.tensor([1.0, 0.0, -2.0, 3.0, 0.5, 1.0])

    (log_partition(weight_BNN, LENGTHS) * scale_B).sum().backward()

    wanted_BNN = marginals(weights(), LENGTHS) * scale_B[:, None, None]
    torch.testing.assert_close(weight_BNN.grad, wanted_BNN)
