"""The linear recurrence against a loop over positions, and by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from weft.blocks.recurrent.linear_recurrence_module import LinearRecurrence

from ..single_node import computed, findings_of, spec_of

D = 3
LENGTHS = [1, 2, 16, 17, 256, 257, 300]
"""Around the sizes of one group and of a group of groups."""


def by_loop(x: Tensor, a: Tensor, start: Tensor) -> Tensor:
    """Return the states, one position after another."""
    state, states = start, []
    for t in range(x.size(1)):
        state = a[:, t] * state + x[:, t]
        states.append(state)
    return torch.stack(states, 1)


def drawn(length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return terms, factors from -1 to 1 of which every fifth is zero, and a start."""
    generator = torch.Generator().manual_seed(length)
    x = torch.randn(2, length, D, generator=generator, dtype=dtype)
    a = 2 * torch.rand(2, length, D, generator=generator, dtype=dtype) - 1
    a[:, 4::5] = 0.0
    a[1] = a[1].abs() ** 0.01  # remembers for long
    return x, a, torch.randn(2, D, generator=generator, dtype=dtype)


def test_three_steps_by_hand() -> None:
    """From 0: 1, 0.5 * 1 + 2, 0 * 2.5 - 3; and from 4: 0.5 * 4 + 1, 0.5 * 3 + 2, -3."""
    x = torch.tensor([1.0, 2.0, -3.0]).view(1, 3, 1)
    a = torch.tensor([0.5, 0.5, 0.0]).view(1, 3, 1)

    without = computed(spec_of("linear_recurrence@1", {"x": "f[B T 1]", "a": "f[B T 1]"}), x=x, a=a)
    inputs = {"x": "f[B T 1]", "a": "f[B T 1]", "start": "f[B 1]"}
    begun = computed(spec_of("linear_recurrence@1", inputs), x=x, a=a, start=torch.tensor([[4.0]]))

    assert without.flatten().tolist() == [1.0, 2.5, -3.0]
    assert begun.flatten().tolist() == [3.0, 3.5, -3.0]


@pytest.mark.parametrize("length", LENGTHS)
def test_groups_of_positions_give_the_loop(length: int) -> None:
    """To rounding in float64, and to 1e-5 in float32, with and without a start."""
    for dtype, tolerance in ((torch.float64, 1e-13), (torch.float32, 1e-5)):
        x, a, start = drawn(length, dtype)
        block = LinearRecurrence(D)

        expected, from_zero = by_loop(x, a, start), by_loop(x, a, torch.zeros_like(start))

        torch.testing.assert_close(block(x, a, start), expected, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(block(x, a), from_zero, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("length", [1, 17, 257])
def test_gradients_are_those_of_the_loop(length: int) -> None:
    """Of terms, factors and start, where factors are zero too."""
    parts = [part.requires_grad_() for part in drawn(length, torch.float64)]
    weight = torch.randn(2, length, D, dtype=torch.float64)

    gradients = torch.autograd.grad((weight * LinearRecurrence(D)(*parts)).sum(), parts)

    expected = torch.autograd.grad((weight * by_loop(*parts)).sum(), parts)
    for one, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_gradients_are_finite_differences() -> None:
    """For two levels of groups."""
    x, a, start = (part.requires_grad_() for part in drawn(18, torch.float64))

    assert torch.autograd.gradcheck(LinearRecurrence(D), (x, a, start))


def test_a_fast_decay_neither_overflows_nor_vanishes_into_nan() -> None:
    """Products of 4,096 factors underflow to zero, and the gradient stays finite."""
    x, a = torch.ones(1, 4096, 1), torch.full((1, 4096, 1), 1e-8, requires_grad=True)

    y = LinearRecurrence(1)(x, a)
    y.sum().backward()

    torch.testing.assert_close(y, torch.full_like(y, 1.0 + 1e-8))
    assert a.grad is not None
    assert a.grad.isfinite().all()


def test_the_state_is_kept_at_masked_positions() -> None:
    """Positions without the masked ones give the same states."""
    x, a, _ = drawn(20, torch.float64)
    mask = torch.ones(2, 20, dtype=torch.bool)
    mask[:, 6:9] = False

    y = LinearRecurrence(D)(x, a, mask=mask)

    joined = LinearRecurrence(D)(x[:, mask[0]], a[:, mask[0]])
    torch.testing.assert_close(y[:, mask[0]], joined)
    torch.testing.assert_close(y[:, 6:9], y[:, 5:6].expand(-1, 3, -1))


@pytest.mark.parametrize(
    ("inputs", "code", "text"),
    [
        ({"x": "f[B T 8]", "a": "f[B T 4]"}, "T03", "8"),
        ({"x": "f[B T 8]", "a": "f[B T]"}, "T04", "b t d"),
        ({"x": "f[B T 8]"}, "W01", "port 'a'"),
        ({"x": "f[B T 8]", "a": "f[B S 8]"}, "T03", "S"),
        ({"x": "f[B T 8]", "a": "f[B T 8]", "start": "f[B T 8]"}, "T04", "b d"),
        ({"x": "f[B T 8]", "a": "mask[B T 8]"}, "T02", "kind"),
        ({"x": "f[B T 8]", "a": "f[B T 8]", "h": "f[B 8]"}, "N03", "no port 'h'"),
    ],
)
def test_a_wrong_recurrence_is_found_at_its_node(
    inputs: dict[str, str], code: str, text: str
) -> None:
    """Each mistake has its code, and names what is wrong or what to write instead."""
    findings = findings_of(spec_of("linear_recurrence@1", inputs))

    finding = next(finding for finding in findings if finding.code == code)
    assert text in " ".join([finding.problem, *finding.evidence, finding.help])
    assert "/nodes/node" in finding.at
