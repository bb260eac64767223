"""The operators of experts against a loop over rows, which torch differentiates."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.library import opcheck
from torch.utils.flop_counter import FlopCounterMode
from weft.blocks.kernels.expert_matmul import expert_matmul, expert_outer

COUNTS = [[2, 0, 3, 1], [0, 0, 6, 0], [0, 0, 0, 0]]
"""Rows of four experts, of which some have none."""


def drawn(count: list[int], kind: torch.dtype = torch.float64, width: int = 3) -> list[Tensor]:
    """Return rows, matrices and other rows that need gradients."""
    generator = torch.Generator().manual_seed(1)
    shapes = [(sum(count), width), (len(count), width, 8), (sum(count), 8)]
    parts = [torch.randn(shape, generator=generator).to(kind) for shape in shapes]
    return [part.requires_grad_() for part in parts]


def by_row(x_MI: Tensor, weight_EIO: Tensor, count: list[int]) -> Tensor:
    """Return the product of each row with the matrix of its expert."""
    expert_M = [expert for expert, rows in enumerate(count) for _ in range(rows)]
    rows = [row @ weight_EIO[expert] for row, expert in zip(x_MI, expert_M, strict=True)]
    return torch.stack(rows) if rows else x_MI.new_zeros(0, weight_EIO.size(2))


@pytest.mark.parametrize("count", COUNTS)
def test_products_and_gradients_are_those_of_a_loop(count: list[int]) -> None:
    """Of rows and matrices; an expert without rows has no gradient."""
    x, weight, other = drawn(count)

    products = expert_matmul(x, weight, torch.tensor(count))

    expected = by_row(x, weight, count)
    torch.testing.assert_close(products, expected)
    gradients, by_hand = (
        torch.autograd.grad(
            (y * other).sum(), (x, weight), materialize_grads=True, allow_unused=True
        )
        for y in (products, expected)
    )
    torch.testing.assert_close(gradients, by_hand)
    outer = expert_outer(x, other, torch.tensor(count))
    torch.testing.assert_close(outer, gradients[1])


def test_two_experts_by_hand() -> None:
    """(1, 2) times its matrix is 3 + 10; the gradient of a matrix is the sum of its rows."""
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]).requires_grad_()
    weight = torch.tensor([[[3.0], [5.0]], [[7.0], [9.0]]]).requires_grad_()

    y = expert_matmul(x, weight, torch.tensor([1, 2]))
    of_x, of_weight = torch.autograd.grad(y.sum(), (x, weight))

    assert y.flatten().tolist() == [13.0, 57.0, 89.0]
    assert of_x.tolist() == [[3.0, 5.0], [7.0, 9.0], [7.0, 9.0]]
    assert of_weight.flatten().tolist() == [1.0, 2.0, 8.0, 10.0]


def test_gradients_of_gradients_are_finite_differences() -> None:
    """The backward passes can be differentiated, as a penalty on gradients needs."""
    count = torch.tensor(COUNTS[0])
    x, weight, other = drawn(COUNTS[0])

    assert torch.autograd.gradgradcheck(expert_matmul, (x, weight, count))
    assert torch.autograd.gradgradcheck(expert_outer, (x, other, count))


def test_one_kernel_for_all_experts_agrees_in_bfloat16() -> None:
    """With widths that are multiples of 8, forward and backward, up to rounding."""
    x, weight, other = drawn(COUNTS[0], torch.bfloat16, width=16)
    exact_x, exact_weight = (part.detach().double().requires_grad_() for part in (x, weight))

    y = expert_matmul(x, weight, torch.tensor(COUNTS[0]))
    gradients = torch.autograd.grad((y * other).sum(), (x, weight))

    expected = by_row(exact_x, exact_weight, COUNTS[0])
    by_hand = torch.autograd.grad((expected * other.double()).sum(), (exact_x, exact_weight))
    for result, wanted in zip((y, *gradients), (expected, *by_hand), strict=True):
        assert result.dtype == torch.bfloat16
        torch.testing.assert_close(result.double(), wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.slow
def test_the_operators_keep_the_rules_of_the_compiler() -> None:
    """Their schemas, their shapes without values, their gradients, and both with symbolic sizes."""
    count = torch.tensor(COUNTS[0])
    x, weight, other = drawn(COUNTS[0])

    opcheck(torch.ops.weft.expert_matmul.default, (x, weight, count))
    opcheck(torch.ops.weft.expert_outer.default, (x, other, count))


def test_products_are_counted() -> None:
    """Two operations for each row, input and output, forward and for both gradients."""
    x, weight, _ = drawn(COUNTS[0])

    with FlopCounterMode(display=False) as counter:
        expert_matmul(x, weight, torch.tensor(COUNTS[0])).sum().backward()

    assert counter.get_total_flops() == 3 * 2 * 6 * 3 * 8
