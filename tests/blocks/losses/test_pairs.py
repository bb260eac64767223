"""Divergence of distributions and contrast of vectors, against torch and by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Categorical, kl_divergence
from torch.nn import functional as F
from weft.blocks.losses.pairs_module import Contrastive, KLDivergence

MASK = torch.tensor([[True, False, True], [True, True, False]])


@pytest.mark.parametrize("direction", ["forward", "reverse", "symmetric"])
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_kl_divergence_is_that_of_torch(direction: str, temperature: float) -> None:
    """The sum over unmasked positions, times the squared temperature (Hinton et al., section 2)."""
    logits, target = 2 * torch.randn(2, 2, 3, 7, dtype=torch.float64)
    loss = KLDivergence(temperature, direction)

    found = loss(logits, target, MASK)

    student, teacher = (Categorical(logits=one / temperature) for one in (logits, target))
    forward, reverse = kl_divergence(teacher, student), kl_divergence(student, teacher)
    each = {"forward": forward, "reverse": reverse, "symmetric": (forward + reverse) / 2}
    wanted = temperature**2 * each[direction][MASK].sum()
    torch.testing.assert_close(found, wanted.float(), rtol=1e-5, atol=1e-5)
    assert loss.weight(mask=MASK).item() == 4


def test_classes_count_where_they_are_not_negative() -> None:
    """As a mask would."""
    logits, target = torch.randn(2, 2, 3, 7)
    classes = MASK.long() - 1
    loss = KLDivergence()

    assert torch.equal(loss(logits, target, classes), loss(logits, target, MASK))
    assert loss.weight(classes=classes).item() == 4


def test_a_class_that_both_exclude_does_not_matter() -> None:
    """0 log 0 is 0, in the loss and in its gradient."""
    logits = torch.tensor([[1.0, 0.5, -math.inf]], requires_grad=True)
    target = torch.tensor([[0.0, 2.0, -math.inf]])
    loss = KLDivergence()
    mask = torch.tensor([True])

    found = loss(logits, target, mask)

    torch.testing.assert_close(found, loss(logits[:, :2], target[:, :2], mask))
    assert torch.autograd.grad(found, logits)[0].isfinite().all()


def test_equal_logits_do_not_diverge() -> None:
    """The divergence of a distribution from itself is 0."""
    logits = torch.randn(2, 3, 7)

    assert KLDivergence(3.0, "symmetric")(logits, logits + 1.0, MASK).item() == pytest.approx(0)


@pytest.mark.parametrize("directions", ["both", "forward"])
def test_contrast_is_the_cross_entropy_of_similarities(directions: str) -> None:
    """Each row is a class, as in figure 3 of Radford et al. 2021."""
    x, z = torch.randn(2, 5, 8)
    ids = torch.zeros(5, 3, dtype=torch.int64)
    loss = Contrastive(0.2, directions)

    found = loss(x, z, ids)

    score = F.cosine_similarity(x[:, None], z[None], dim=-1) / 0.2
    wanted = F.cross_entropy(score, torch.arange(5), reduction="sum")
    if directions == "both":
        wanted = (wanted + F.cross_entropy(score.T, torch.arange(5), reduction="sum")) / 2
    torch.testing.assert_close(found, wanted)
    for name in ("ids", "mask", "images"):
        assert loss.weight(**{name: ids}).item() == 5


def test_a_single_pair_has_nothing_to_choose_from() -> None:
    """The softmax of one similarity is 1, so its loss is 0."""
    x, z = torch.randn(2, 1, 8)

    assert Contrastive()(x, z, x).item() == 0.0
