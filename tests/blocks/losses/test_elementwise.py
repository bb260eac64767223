"""Binary cross-entropy and mean squared error against torch's."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F
from weft.blocks.losses.elementwise_module import BinaryCrossEntropy, MeanSquaredError

MASK = torch.tensor([[True, False, True, True], [False, True, True, False]])


@pytest.mark.parametrize("masked", [True, False])
def test_binary_cross_entropy_with_several_labels_is_that_of_torch(*, masked: bool) -> None:
    """The mean over the labels of an item; divided by the weight, torch's mean."""
    logits, labels = 3 * torch.randn(2, 4, 5), torch.rand(2, 4, 5)
    mask = MASK if masked else None
    kept = MASK if masked else torch.ones_like(MASK)
    loss = BinaryCrossEntropy()

    found = loss(logits, labels, mask) / loss.weight(labels=labels, mask=mask)

    wanted = F.binary_cross_entropy_with_logits(logits[kept], labels[kept])
    torch.testing.assert_close(found, wanted)
    assert loss.weight(labels=labels, mask=mask).item() == kept.sum().item()


def test_one_binary_label_worked_out_by_hand() -> None:
    """A score of log 3 is a probability of 3/4; a class of -1 does not count."""
    logits = torch.full((1, 3, 1), math.log(3.0))
    classes = torch.tensor([[1, 0, -1]])
    loss = BinaryCrossEntropy()

    found = loss(logits, classes=classes)

    assert found.item() == pytest.approx(-math.log(0.75) - math.log(0.25))
    assert loss.weight(classes=classes).item() == 2
    masked = loss(logits, truth=classes == 1, mask=classes >= 0)
    assert masked.item() == pytest.approx(found.item())
    assert loss.weight(truth=classes == 1).item() == 3
    assert loss.weight(truth=classes == 1, mask=classes >= 0).item() == 2


@pytest.mark.parametrize("masked", [True, False])
def test_mean_squared_error_is_that_of_torch(*, masked: bool) -> None:
    """Divided by the weight, the mean over features and items."""
    x, target = torch.randn(2, 4, 5, requires_grad=True), torch.randn(2, 4, 5)
    mask = MASK if masked else None
    kept = MASK if masked else torch.ones_like(MASK)
    loss = MeanSquaredError()

    found = loss(x, target, mask) / loss.weight(target, mask=mask)

    wanted = F.mse_loss(x[kept], target[kept])
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(torch.autograd.grad(found, x), torch.autograd.grad(wanted, x))


def test_a_mask_tells_the_number_of_items_without_the_target() -> None:
    """The target may come from a teacher, which has not run when the items are counted."""
    assert MeanSquaredError().weight(mask=MASK).item() == 5


def test_numbers_are_compared_with_vectors_of_one() -> None:
    """By hand: (3 - 1)^2 + (0 - 2)^2; a column of numbers has no axis of its own."""
    loss = MeanSquaredError()
    target = torch.tensor([1.0, 2.0])

    assert loss(torch.tensor([[3.0], [0.0]]), numbers=target).item() == 8.0
    assert loss.weight(numbers=target).item() == 2
