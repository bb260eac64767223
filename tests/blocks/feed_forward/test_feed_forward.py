"""Feed-forward: the two maps of section 3.3 and the three maps of a gated one, by hand."""

from __future__ import annotations

import math

import pytest
import torch
from weft.blocks.feed_forward.feed_forward_module import FeedForward, GatedFeedForward


def toy(activation: str) -> FeedForward:
    """Return a feed-forward network of width 2 with three hidden units."""
    block = FeedForward(2, 3, activation)
    with torch.no_grad():
        block.inner.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        block.inner.bias.copy_(torch.tensor([0.5, 0.0, -3.0]))
        block.outer.weight.copy_(torch.tensor([[1.0, 2.0, 4.0], [-1.0, 0.0, 1.0]]))
        block.outer.bias.copy_(torch.tensor([10.0, 0.0]))
    return block


def test_relu_is_the_formula_of_the_paper() -> None:
    """For (1, 3), the hidden values are 1.5, 3, 1; for (-1, 2), they are 0 (not -0.5), 2, 0."""
    x = torch.tensor([[1.0, 3.0], [-1.0, 2.0]])

    found = toy("relu")(x)

    first = [1.5 + 2 * 3 + 4 * 1 + 10, -1.5 + 1]
    second = [2 * 2 + 10, 0.0]
    torch.testing.assert_close(found, torch.tensor([first, second]))


def test_gelu_weighs_by_the_normal_distribution() -> None:
    """gelu(z) = z * P(Z <= z), with the error function."""
    x = torch.tensor([[-1.0, 2.0]])

    found = toy("gelu")(x)

    a, b, c = (z * 0.5 * (1 + math.erf(z / math.sqrt(2))) for z in (-0.5, 2.0, -2.0))
    torch.testing.assert_close(found, torch.tensor([[a + 2 * b + 4 * c + 10, -a + c]]))


def test_dropout_follows_the_activation() -> None:
    """With one hidden unit, the output is the bias, or twice the map plus the bias."""
    block = FeedForward(1, 1, dropout=0.5).train()
    with torch.no_grad():
        for weight in block.parameters():
            weight.fill_(1.0)

    found = block(torch.ones(2000, 1))

    # Hidden 2, doubled to 4 unless dropped; the outer bias of 1 is never dropped.
    assert set(found.unique().tolist()) == {1.0, 5.0}
    assert (found == 5).float().mean().item() == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(2000))


def test_silu_weighs_by_the_sigmoid() -> None:
    """silu(z) = z / (1 + exp(-z))."""
    x = torch.tensor([[-1.0, 2.0]])

    found = toy("silu")(x)

    a, b, c = (z / (1 + math.exp(-z)) for z in (-0.5, 2.0, -2.0))
    torch.testing.assert_close(found, torch.tensor([[a + 2 * b + 4 * c + 10, -a + c]]))


def test_gelu_tanh_is_the_approximation_of_its_paper() -> None:
    """0.5 z (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3))); Hendrycks and Gimpel 2016, section 2."""
    x = torch.tensor([[-1.0, 2.0]])

    found = toy("gelu_tanh")(x)

    a, b, c = (GATES["gelu_tanh"](z) for z in (-0.5, 2.0, -2.0))
    torch.testing.assert_close(found, torch.tensor([[a + 2 * b + 4 * c + 10, -a + c]]))


GATES = {
    "silu": lambda z: z / (1 + math.exp(-z)),
    "gelu": lambda z: z * 0.5 * (1 + math.erf(z / math.sqrt(2))),
    "relu": lambda z: max(z, 0.0),
    "sigmoid": lambda z: 1 / (1 + math.exp(-z)),
    "gelu_tanh": lambda z: (
        z * 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
    ),
}
"""Shazeer 2020: SwiGLU, GEGLU, ReGLU and GLU, as scalar functions."""


@pytest.mark.parametrize("activation", GATES)
def test_a_gated_map_is_the_formula_of_the_paper(activation: str) -> None:
    """outer(act(gate(x)) * inner(x)): for (3, -1), the gates are 3.5 and -1, the values 2 and 6."""
    block = GatedFeedForward(2, 2, activation)
    with torch.no_grad():
        block.gate.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        block.gate.bias.copy_(torch.tensor([0.5, 0.0]))
        block.inner.weight.copy_(torch.tensor([[1.0, 1.0], [1.0, 0.0]]))
        block.inner.bias.copy_(torch.tensor([0.0, 3.0]))
        block.outer.weight.copy_(torch.tensor([[1.0, 10.0], [-1.0, 0.0]]))
        block.outer.bias.copy_(torch.tensor([7.0, 0.0]))

    found = block(torch.tensor([3.0, -1.0]))

    a, b = GATES[activation](3.5) * 2, GATES[activation](-1.0) * 6
    torch.testing.assert_close(found, torch.tensor([a + 10 * b + 7, -a]))


def test_a_bounded_gate_and_hidden_layer_by_hand() -> None:
    """At most 2: the gates 3.5 and -1 become 2 and -1, and the values 2.5 and -6 become 2 and -2.

    The offset of 1 is added after the bound.
    """
    block = GatedFeedForward(2, 2, "relu", limit=2.0, offset=1.0)
    with torch.no_grad():
        block.gate.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, -1.0]]))
        block.gate.bias.copy_(torch.tensor([0.5, 0.0]))
        block.inner.weight.copy_(torch.tensor([[1.0, 1.0], [-1.0, 0.0]]))
        block.inner.bias.copy_(torch.tensor([0.5, -3.0]))
        block.outer.weight.copy_(torch.tensor([[1.0, 10.0], [-1.0, 0.0]]))
        block.outer.bias.copy_(torch.tensor([7.0, 0.0]))

    outputs = block(torch.tensor([[3.0, -1.0], [3.0, 1.0]]))

    first, second = 2 * (2 + 1), 1 * (-2 + 1)
    torch.testing.assert_close(
        outputs, torch.tensor([[first + 10.0 * second + 7, -first], [first + 7.0, -first]])
    )


def test_dropout_falls_on_the_gated_product() -> None:
    """With one hidden unit, the output is the bias, or twice the map plus the bias."""
    block = GatedFeedForward(1, 1, "relu", dropout=0.5).train()
    with torch.no_grad():
        for weight in block.parameters():
            weight.fill_(1.0)

    found = block(torch.ones(2000, 1))

    # Gate 2 times value 2, doubled to 8 unless dropped; the outer bias of 1 is never dropped.
    assert set(found.unique().tolist()) == {1.0, 9.0}
    assert (found == 9).float().mean().item() == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(2000))
