"""Triton kernels without a GPU: run by the interpreter of Triton, with real numbers.

Triton decides when it is imported whether it interprets, so these tests have their own process.
"""

from __future__ import annotations

import os

import pytest
import torch
from torch.nn import functional as F
from weft.blocks.kernels.losses import fused_linear_cross_entropy as fused

pytestmark = [
    pytest.mark.rehearsal,
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") != "1", reason="needs the interpreter of Triton"
    ),
]
WIDTH, WORDS, PAD = 6, 5003, 0
"""More words than one step of the kernel reads, and no multiple of it."""


@pytest.mark.parametrize("biased", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_interpreted_kernel_gives_the_loss_and_gradients_of_torch(
    smoothing: float, biased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several chunks, against cross_entropy of all logits."""
    monkeypatch.setattr(fused, "CHUNK", 5 * WORDS)
    generator = torch.Generator().manual_seed(3)
    shapes = [(3, 7, WIDTH), (WORDS, WIDTH), (WORDS,)][: 2 + biased]
    drawn = [torch.randn(*shape, generator=generator).requires_grad_() for shape in shapes]
    target = torch.randint(0, WORDS, (3, 7), generator=generator)
    target[0, :2] = torch.tensor([PAD, WORDS - 1])

    loss, nll = fused.fused_linear_cross_entropy(
        fused.LinearOutput(*drawn),
        target,
        target != PAD,
        smoothing=smoothing,
        spread="vocabulary",
        normalizer="triton",
    )
    found = torch.autograd.grad(loss, drawn)

    def plain(epsilon: float) -> torch.Tensor:
        logits = F.linear(*drawn).flatten(0, -2)
        return F.cross_entropy(
            logits, target.flatten(), ignore_index=PAD, label_smoothing=epsilon, reduction="sum"
        )

    expected = plain(smoothing)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(nll, plain(0.0))
    for one, right in zip(found, torch.autograd.grad(expected, drawn), strict=True):
        torch.testing.assert_close(one, right, rtol=1e-4, atol=1e-5)
