"""The operator of affine scans against a loop over positions, which torch differentiates."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.library import opcheck
from torch.utils.flop_counter import FlopCounterMode
from weft.blocks.kernels.affine_scan import MANY, affine_scan, states_in_groups

LENGTHS = [0, 1, 5, 16, 31, 32, 45, 300]
"""Around one group of 16 positions, two, and a group of groups."""


def drawn(length: int, *, matrices: bool, rows: int = 2, width: int = 3) -> list[Tensor]:
    """Return factors, terms and a start in float64 that need gradients."""
    generator = torch.Generator().manual_seed(length)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    sizes = (width, 2) if matrices else (width,)
    factor = normal(rows, length, width, width if matrices else 1)
    factor = factor / 4 if matrices else factor.expand(-1, -1, -1, 2).sum(-1).tanh()
    parts = [factor, normal(rows, length, *sizes), normal(rows, *sizes)]
    return [part.requires_grad_() for part in parts]


def by_loop(factor: Tensor, term: Tensor, start: Tensor | None, *, matrices: bool) -> Tensor:
    """Return the states, one position after another."""
    states = [torch.zeros_like(term).sum(1) if start is None else start]
    for factor_t, term_t in zip(factor.unbind(1), term.unbind(1), strict=True):
        product = factor_t @ states[-1] if matrices else factor_t * states[-1]
        states.append(product + term_t)
    return torch.stack(states, 1)[:, 1:]


@pytest.mark.parametrize("matrices", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
def test_states_and_gradients_are_those_of_a_loop(length: int, *, matrices: bool) -> None:
    """Of factors, terms and the start, from a loss that reads every state."""
    parts = drawn(length, matrices=matrices)

    states = affine_scan(*parts, matrices=matrices)

    expected = by_loop(*parts, matrices=matrices)
    torch.testing.assert_close(states, expected)
    weight = torch.randn_like(expected)
    gradients, by_hand = (
        torch.autograd.grad((y * weight).sum(), parts, allow_unused=True, materialize_grads=True)
        for y in (states, expected)
    )
    torch.testing.assert_close(gradients, by_hand)


@pytest.mark.parametrize("matrices", [False, True])
def test_the_gradient_of_the_final_state_alone_reaches_everything(*, matrices: bool) -> None:
    """Through 45 positions to the start, and without a start."""
    parts = drawn(45, matrices=matrices)

    for start in (parts[2], None):
        inputs = [parts[0], parts[1], start]
        ends = [form(*inputs, matrices=matrices)[:, -1] for form in (affine_scan, by_loop)]
        tensors = [part for part in inputs if part is not None]
        gradients, expected = (torch.autograd.grad(end.square().sum(), tensors) for end in ends)
        torch.testing.assert_close(gradients, expected)
        assert gradients[1][:, 0].any()


def test_two_positions_by_hand() -> None:
    """States 2 * 5 + 1 = 11 and 3 * 11 + 4 = 37; dh_2 is 3 * 5 by f_1, 11 by f_2, 3 * 2 by h_0."""
    factor, term, start = (
        torch.tensor(values).requires_grad_()
        for values in ([[[2.0], [3.0]]], [[[1.0], [4.0]]], [[5.0]])
    )

    states = affine_scan(factor, term, start)
    gradients = torch.autograd.grad(states[:, -1].sum(), (factor, term, start))

    assert states.flatten().tolist() == [11.0, 37.0]
    assert [gradient.flatten().tolist() for gradient in gradients] == [[15, 11], [3, 1], [6]]


@pytest.mark.parametrize("matrices", [False, True])
def test_gradients_of_gradients_are_finite_differences(*, matrices: bool) -> None:
    """The backward pass can be differentiated, as a penalty on gradients needs."""
    parts = [part.detach()[:1].requires_grad_() for part in drawn(3, matrices=matrices)]

    def scan(*parts: Tensor) -> Tensor:
        return affine_scan(*parts, matrices=matrices)

    assert torch.autograd.gradgradcheck(scan, parts)


@pytest.mark.slow
@pytest.mark.parametrize("matrices", [False, True])
def test_the_operator_keeps_the_rules_of_the_compiler(*, matrices: bool) -> None:
    """Its schema, its shapes without values, its gradients, and both with symbolic sizes."""
    parts = drawn(5, matrices=matrices)

    for start, reverse in ((parts[2], False), (None, True)):
        opcheck(torch.ops.weft.affine_scan.default, (*parts[:2], start, matrices, reverse))


def test_wide_states_are_those_of_narrow_ones() -> None:
    """A CPU computes them one after another, also from the last position."""
    parts = [part.detach() for part in drawn(40, matrices=False, rows=1, width=MANY)]

    for reverse in (False, True):
        wide = torch.ops.weft.affine_scan(*parts, False, reverse)
        narrow = [part[..., :7] for part in parts]
        torch.testing.assert_close(
            wide[..., :7], torch.ops.weft.affine_scan(*narrow, False, reverse)
        )


@pytest.mark.parametrize("length", LENGTHS)
def test_the_form_of_exports_gives_the_states_of_a_loop(length: int) -> None:
    """Where no operator can be registered: in ejected files, and in graphs of other engines."""
    for matrices in (False, True):
        parts = drawn(length, matrices=matrices)
        for start in (parts[2], None):
            states = states_in_groups(parts[0], parts[1], start, matrices=matrices)
            expected = by_loop(parts[0], parts[1], start, matrices=matrices)
            torch.testing.assert_close(states, expected)


def test_autocast_does_not_round_products_of_states() -> None:
    """Neither forward nor backward, if both run in its context: every state is in float32."""
    parts = [part.detach().float().requires_grad_() for part in drawn(9, matrices=True)]
    states = affine_scan(*parts, matrices=True)
    gradients = torch.autograd.grad(states.square().sum(), parts)

    with torch.autocast("cpu", torch.bfloat16):
        again = affine_scan(*parts, matrices=True)
        gradients_again = torch.autograd.grad(again.square().sum(), parts)

    torch.testing.assert_close(again, states, rtol=0, atol=0)
    torch.testing.assert_close(gradients_again, gradients, rtol=0, atol=0)


@pytest.mark.parametrize("start", [True, False])
def test_the_products_of_matrices_are_counted(*, start: bool) -> None:
    """As torch counts those of the loop; without a start, the first position has none."""
    factor, term, first = drawn(6, matrices=True)
    totals: list[Any] = []

    for form in (affine_scan, by_loop):
        with FlopCounterMode(display=False) as counter:
            form(factor, term, first if start else None, matrices=True)
        totals.append(counter.get_total_flops())

    assert totals[0] == totals[1] - (0 if start else 2 * 2 * 3 * 3 * 2)
