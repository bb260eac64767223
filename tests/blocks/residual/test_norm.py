"""Norms against the formulas by hand, including eps."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from weft.blocks.residual.sublayer_module import LayerNorm, RMSNorm


def test_follows_the_formula() -> None:
    """(1, 2, 3, 6) has mean 3 and variance 14 / 4, not 14 / 3; then scale and shift."""
    block = LayerNorm(4, eps=1e-6)
    with torch.no_grad():
        block.weight.copy_(torch.tensor([1.0, 2.0, 1.0, 1.0]))
        block.bias.copy_(torch.tensor([0.0, 0.0, 5.0, 0.0]))

    found = block(torch.tensor([1.0, 2.0, 3.0, 6.0]))

    deviation = math.sqrt(3.5 + 1e-6)
    expected = [-2 / deviation, 2 * -1 / deviation, 5.0, 3 / deviation]
    torch.testing.assert_close(found, torch.tensor(expected))


@pytest.mark.parametrize("eps", [1e-6, 0.25])
def test_eps_is_added_to_the_variance(eps: float) -> None:
    """(-1, 1) / 1000 has variance 1e-6: eps inside the root determines the result."""
    found = LayerNorm(2, eps=eps)(torch.tensor([-1e-3, 1e-3]))

    size = 1e-3 / math.sqrt(1e-6 + eps)
    torch.testing.assert_close(found, torch.tensor([-size, size]))


def test_a_constant_vector_gives_the_shift() -> None:
    """A variance of zero causes no division by zero."""
    block = LayerNorm(3, eps=1e-6)
    nn.init.constant_(block.bias, 7.0)

    assert torch.equal(block(torch.full((2, 3), 4.0)), torch.full((2, 3), 7.0))


def test_starts_as_a_plain_normalisation() -> None:
    """Scale 1 and shift 0, whatever the previous values."""
    block = LayerNorm(3, eps=1e-6)
    with torch.no_grad():
        block.weight.fill_(9.0)
        block.bias.fill_(9.0)

    block.initialize(torch.Generator())

    assert torch.equal(block.weight, torch.ones(3))
    assert torch.equal(block.bias, torch.zeros(3))


def test_rms_norm_follows_the_formula() -> None:
    """(1, 5, -7, 5) has mean square 100 / 4, and no mean is subtracted; then the scale."""
    block = RMSNorm(4, eps=1e-6)
    with torch.no_grad():
        block.weight.copy_(torch.tensor([1.0, 2.0, 1.0, -1.0]))

    found = block(torch.tensor([1.0, 5.0, -7.0, 5.0]))

    root = math.sqrt(25 + 1e-6)
    torch.testing.assert_close(found, torch.tensor([1 / root, 10 / root, -7 / root, -5 / root]))


def test_rms_norm_is_torchs() -> None:
    """Same scale and eps give the same vectors and gradients."""
    ours, theirs = RMSNorm(6, eps=0.1).double(), nn.RMSNorm(6, eps=0.1, dtype=torch.float64)
    nn.init.normal_(ours.weight)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 3, 6, dtype=torch.float64)
    pull = torch.randn(2, 3, 6, dtype=torch.float64)

    found, expected = ours(x), theirs(x)
    (found * pull).sum().backward()
    (expected * pull).sum().backward()

    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad, rtol=0, atol=1e-12)


@pytest.mark.parametrize("eps", [1e-6, 0.25])
def test_eps_is_added_to_the_mean_square(eps: float) -> None:
    """(-1, 1) / 1000 has mean square 1e-6: eps inside the root determines the result."""
    found = RMSNorm(2, eps=eps)(torch.tensor([-1e-3, 1e-3]))

    size = 1e-3 / math.sqrt(1e-6 + eps)
    torch.testing.assert_close(found, torch.tensor([-size, size]))


def test_rms_norm_of_mixed_precision_is_in_full_precision() -> None:
    """bfloat16 input with a float32 weight: no precision is lost, and torch does not warn."""
    block = RMSNorm(64, eps=1e-6)
    x = torch.randn(5, 64).bfloat16()

    with torch.autocast("cpu", torch.bfloat16):
        found = block(x)

    assert found.dtype == torch.float32
    torch.testing.assert_close(found, block(x.float()))


def test_rms_norm_starts_with_scale_one() -> None:
    """Whatever the previous values."""
    block = RMSNorm(3, eps=1e-6)
    nn.init.constant_(block.weight, 9.0)

    block.initialize(torch.Generator())

    assert torch.equal(block.weight, torch.ones(3))


def test_norms_without_a_weight_only_normalize() -> None:
    """(1, 2, 3, 6) has mean 3 and variance 14 / 4, and (1, 5, -7, 5) mean square 100 / 4."""
    layer_norm = LayerNorm(4, eps=1e-6, weight=False)
    rms_norm = RMSNorm(4, eps=1e-6, weight=False)

    deviation, root = math.sqrt(3.5 + 1e-6), math.sqrt(25 + 1e-6)
    expected = [number / deviation for number in (-2, -1, 0, 3)]
    torch.testing.assert_close(
        layer_norm(torch.tensor([1.0, 2.0, 3.0, 6.0])), torch.tensor(expected)
    )
    expected = [number / root for number in (1, 5, -7, 5)]
    torch.testing.assert_close(
        rms_norm(torch.tensor([1.0, 5.0, -7.0, 5.0])), torch.tensor(expected)
    )
    assert not [*layer_norm.parameters(), *rms_norm.parameters()]
