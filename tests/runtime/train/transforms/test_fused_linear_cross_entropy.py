"""A model that leaves its output projection to the loss."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from weft.blocks.kernels.losses.fused_linear_cross_entropy import (
    LinearOutput,
    fused_linear_cross_entropy,
)
from weft.runtime.train.transforms.fused_linear_cross_entropy import bypassed

WIDTH, WORDS = 6, 29


class _Tiny(nn.Module):
    """A model with an output projection and an auxiliary output."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = self.inner(x)
        return {"logits": self.head(hidden), "balance": hidden.sum()}


def test_a_model_runs_with_its_head_in_the_loss() -> None:
    """All parameters get the gradients of the unfused loss, and the head is restored."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(3, 7, WIDTH, generator=generator)
    target = torch.randint(0, WORDS, (3, 7), generator=generator)
    model = _Tiny()

    with bypassed(model.head):
        outputs = model(x)
    output = LinearOutput(outputs["logits"], model.head.weight, model.head.bias)
    mask = torch.ones_like(target, dtype=torch.bool)
    loss, _ = fused_linear_cross_entropy(output, target, mask, smoothing=0.1, spread="vocabulary")
    found = torch.autograd.grad(loss + outputs["balance"], list(model.parameters()))

    outputs = model(x)
    logits, labels = outputs["logits"].flatten(0, 1), target.flatten()
    loss = F.cross_entropy(logits, labels, label_smoothing=0.1, reduction="sum")
    wanted = torch.autograd.grad(loss + outputs["balance"], list(model.parameters()))
    torch.testing.assert_close(found, wanted)
    assert logits.size(-1) == WORDS


def test_a_head_is_put_back_after_an_error() -> None:
    """The head is restored if the model raises an error."""
    model = _Tiny()
    with pytest.raises(KeyError), bypassed(model.head):
        raise KeyError
    assert model.head(torch.zeros(1, WIDTH)).size(-1) == WORDS
