"""Divergence of distributions and contrast of vectors, against torch and by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Categorical, kl_divergence
from torch.nn import functional as F
from weft.blocks.kernels.losses import divergence as kernel
from weft.blocks.kernels.losses.divergence import Direction
from weft.blocks.losses.pairs_module import Contrastive, KLDivergence

MASK = torch.tensor([[True, False, True], [True, True, False]])


@pytest.mark.parametrize("direction", ["forward", "reverse", "symmetric"])
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_kl_divergence_is_that_of_torch(direction: Direction, temperature: float) -> None:
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


@pytest.mark.parametrize("direction", ["forward", "reverse", "symmetric"])
@pytest.mark.parametrize("needed", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("selects", [True, False], ids=["CPU", "accelerator"])
def test_gradients_of_the_divergence_are_those_of_autograd(
    direction: Direction,
    needed: tuple[bool, bool],
    selects: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In several parts, for either logits or both; rows that do not count have none."""
    monkeypatch.setattr(kernel, "_selects_rows", lambda _: selects)
    monkeypatch.setattr(kernel, "CACHED", 3 * 7)
    monkeypatch.setattr(kernel, "CHUNK", 2 * 7)
    pair = [torch.randn(2, 3, 7).mul(3).requires_grad_(need) for need in needed]
    learning = [one for one in pair if one.requires_grad]

    found = 1.5 * KLDivergence(2.0, direction)(*pair, MASK)

    log_q, log_p = ((one / 2).log_softmax(-1) for one in pair)
    forward = F.kl_div(log_q, log_p, log_target=True, reduction="none").sum(-1)
    reverse = F.kl_div(log_p, log_q, log_target=True, reduction="none").sum(-1)
    each = {"forward": forward, "reverse": reverse, "symmetric": (forward + reverse) / 2}
    wanted = 1.5 * 4 * each[direction][MASK].sum()
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    for gradient, expected in zip(
        torch.autograd.grad(found, learning, retain_graph=True),
        torch.autograd.grad(wanted, learning),
        strict=True,
    ):
        torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-6)
        assert not gradient[~MASK].any()
    again = torch.autograd.grad(found, learning)
    assert len(again) == len(learning)


def test_logits_of_other_shapes_are_refused() -> None:
    """Nothing is broadcast."""
    with pytest.raises(ValueError, match="do not fit"):
        KLDivergence()(torch.randn(2, 3, 7), torch.randn(2, 1, 7), MASK)


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

    found = loss(x, z, ids=ids)

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

    assert Contrastive()(x, z, ids=x).item() == 0.0
