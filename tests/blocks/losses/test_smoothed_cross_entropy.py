"""The kernel of the label-smoothed cross-entropy, against torch and by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from weft.blocks.kernels.losses import cross_entropy as kernel
from weft.blocks.kernels.losses.cross_entropy import Spread, smoothed_cross_entropy

PAD = 0


def drawn(
    *shape: int, vocabulary: int, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Draw logits that require gradients, and targets that include padding."""
    generator = torch.Generator().manual_seed(3)
    logits = 3.0 * torch.randn(*shape, vocabulary, generator=generator)
    target = torch.randint(0, vocabulary, shape, generator=generator)
    target.view(-1)[:2] = torch.tensor([PAD, 1])
    return logits.to(dtype).requires_grad_(), target


def smoothed(
    logits: Tensor,
    target: Tensor,
    *,
    smoothing: float = 0.1,
    pad: int = PAD,
    spread: Spread = "vocabulary",
) -> tuple[Tensor, Tensor]:
    """Return the loss and the likelihood of the targets that are not padding."""
    return smoothed_cross_entropy(logits, target, target != pad, smoothing=smoothing, spread=spread)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_spread_over_the_vocabulary_is_torch_cross_entropy(smoothing: float) -> None:
    """Loss, likelihood and gradient equal those of `F.cross_entropy`."""
    logits_BTV, target_BT = drawn(3, 7, vocabulary=11)

    loss, nll = smoothed(logits_BTV, target_BT, smoothing=smoothing)
    (gradient,) = torch.autograd.grad(loss / 5, logits_BTV)

    flat = (logits_BTV.flatten(0, 1), target_BT.flatten())
    wanted = F.cross_entropy(*flat, label_smoothing=smoothing, ignore_index=PAD, reduction="sum")
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(gradient, torch.autograd.grad(wanted / 5, logits_BTV)[0])
    torch.testing.assert_close(
        nll, F.cross_entropy(*flat, ignore_index=PAD, reduction="sum").detach()
    )


@pytest.mark.parametrize(
    ("spread", "right", "wrong"), [("vocabulary", 0.9 + 0.1 / 3, 0.1 / 3), ("others", 0.9, 0.05)]
)
def test_one_token_worked_out_by_hand(spread: Spread, right: float, wrong: float) -> None:
    """Probabilities 1/2, 1/4, 1/4; the target is the first of three tokens."""
    logits_BTV = torch.tensor([[[0.5, 0.25, 0.25]]]).log().requires_grad_()

    loss, nll = smoothed(logits_BTV, torch.tensor([[0]]), pad=-100, spread=spread)
    loss.backward()

    assert loss.item() == pytest.approx(right * math.log(2) + 2 * wrong * math.log(4), rel=1e-6)
    assert nll.item() == pytest.approx(math.log(2), rel=1e-6)
    assert logits_BTV.grad is not None
    assert logits_BTV.grad.flatten().tolist() == pytest.approx(
        [0.5 - right, 0.25 - wrong, 0.25 - wrong], rel=1e-5
    )


def test_the_chunk_size_does_not_change_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of one row, or with a remainder, give the result of a single chunk."""
    logits_BTV, target_BT = drawn(3, 7, vocabulary=11)
    together, _ = smoothed(logits_BTV, target_BT)
    (wanted,) = torch.autograd.grad(together, logits_BTV)

    for budget in (1, 55):
        monkeypatch.setattr(kernel, "CACHED", budget)
        loss, _ = smoothed(logits_BTV, target_BT)
        (gradient,) = torch.autograd.grad(loss, logits_BTV)

        torch.testing.assert_close(loss, together)
        torch.testing.assert_close(gradient, wanted)


def test_bfloat16_logits_are_summed_in_float32() -> None:
    """bfloat16 logits give the loss of the same numbers in float32, without rounding."""
    logits_BTV, target_BT = drawn(4, 5, vocabulary=50, dtype=torch.bfloat16)

    loss, _ = smoothed(logits_BTV, target_BT)
    loss.backward()

    wide_BTV = logits_BTV.detach().float().requires_grad_()
    wide, _ = smoothed(wide_BTV, target_BT)
    wide.backward()
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, wide)
    assert logits_BTV.grad is not None
    assert wide_BTV.grad is not None
    assert torch.equal(logits_BTV.grad, wide_BTV.grad.bfloat16())


def test_padding_has_no_loss_and_no_gradient() -> None:
    """Predictions at padding do not change the loss."""
    logits_BTV, target_BT = drawn(2, 4, vocabulary=6)
    target_BT[:, 2:] = PAD
    target_BT[:, :2] = 1
    changed_BTV = logits_BTV.detach().clone()
    changed_BTV[:, 2:] = 1e4 * torch.arange(6)
    changed_BTV.requires_grad_()

    sums = smoothed(logits_BTV, target_BT)
    changed = smoothed(changed_BTV, target_BT)
    changed[0].backward()

    assert torch.equal(sums[0], changed[0])
    assert torch.equal(sums[1], changed[1])
    assert changed_BTV.grad is not None
    assert not changed_BTV.grad[:, 2:].any()
    assert changed_BTV.grad[:, :2].all()


def test_padding_may_be_an_id_outside_the_vocabulary() -> None:
    """A padding id outside the vocabulary works, such as -100, which torch ignores by default."""
    logits_BTV, _ = drawn(1, 2, vocabulary=4)

    loss, _ = smoothed(logits_BTV, torch.tensor([[3, -100]]), pad=-100)
    loss.backward()

    alone, _ = smoothed(logits_BTV[:, :1], torch.tensor([[3]]), pad=-100)
    assert torch.equal(loss, alone)


def test_a_batch_of_padding_sums_to_zero() -> None:
    """Without tokens the loss and the gradient are zero; nothing is divided by zero."""
    logits_BTV, _ = drawn(1, 3, vocabulary=6)

    loss, nll = smoothed(logits_BTV, torch.zeros(1, 3).long())
    loss.backward()

    assert (loss.item(), nll.item()) == (0.0, 0.0)
    assert logits_BTV.grad is not None
    assert not logits_BTV.grad.any()


def test_the_likelihood_is_detached_and_the_graph_can_be_walked_twice() -> None:
    """`nll` has no gradient; with `retain_graph` a second backward pass gives the same gradient."""
    logits_BTV, target_BT = drawn(2, 3, vocabulary=6)
    loss, nll = smoothed(logits_BTV, target_BT)

    (first,) = torch.autograd.grad(loss, logits_BTV, retain_graph=True)
    (second,) = torch.autograd.grad(loss, logits_BTV)

    assert not nll.requires_grad
    assert torch.equal(first, second)


def test_a_forbidden_word_costs_nothing_without_smoothing() -> None:
    """A logit of minus infinity is valid if its token is not a target."""
    logits_BTV = torch.tensor([[[0.0, 0.0, -math.inf]]], requires_grad=True)

    loss, _ = smoothed(logits_BTV, torch.tensor([[1]]), smoothing=0.0)
    loss.backward()

    assert loss.item() == pytest.approx(math.log(2))
    assert logits_BTV.grad is not None
    assert logits_BTV.grad.flatten().tolist() == pytest.approx([0.5, -0.5, 0.0])


@pytest.mark.parametrize("smoothing", [-0.1, 1.0])
def test_an_invalid_smoothing_is_refused(smoothing: float) -> None:
    """Smoothing must leave some probability mass to the target."""
    with pytest.raises(ValueError, match="is not in"):
        smoothed(torch.zeros(1, 1, 3), torch.ones(1, 1).long(), smoothing=smoothing)


def test_targets_of_another_shape_are_refused() -> None:
    """A transposed batch has the same number of rows but must be an error."""
    with pytest.raises(ValueError, match="do not fit labels"):
        smoothed(torch.zeros(2, 3, 4), torch.ones(3, 2).long())
