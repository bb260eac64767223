"""Tests of the label-smoothed loss against torch."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch
import weft.blocks.kernels.losses.cross_entropy as loss_module
from torch import Tensor
from torch.nn.functional import cross_entropy
from weft.runtime.train.loss import label_smoothed, with_auxiliary

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


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_spread_over_the_vocabulary_is_torch_cross_entropy(smoothing: float) -> None:
    """Loss, likelihood, token count and gradient equal those of `F.cross_entropy`."""
    logits_BTV, target_BT = drawn(3, 7, vocabulary=11)

    sums = label_smoothed(logits_BTV, target_BT, smoothing=smoothing, pad=PAD)
    (gradient,) = torch.autograd.grad(sums.loss / 5, logits_BTV)

    flat = (logits_BTV.flatten(0, 1), target_BT.flatten())
    wanted = cross_entropy(*flat, label_smoothing=smoothing, ignore_index=PAD, reduction="sum")
    torch.testing.assert_close(sums.loss, wanted)
    torch.testing.assert_close(gradient, torch.autograd.grad(wanted / 5, logits_BTV)[0])
    torch.testing.assert_close(
        sums.nll, cross_entropy(*flat, ignore_index=PAD, reduction="sum").detach()
    )
    assert sums.tokens.item() == (target_BT != PAD).sum().item()


@pytest.mark.parametrize(
    ("spread", "right", "wrong"), [("vocabulary", 0.9 + 0.1 / 3, 0.1 / 3), ("others", 0.9, 0.05)]
)
def test_one_token_worked_out_by_hand(
    spread: Literal["vocabulary", "others"], right: float, wrong: float
) -> None:
    """Probabilities 1/2, 1/4, 1/4; the target is the first of three tokens."""
    logits_BTV = torch.tensor([[[0.5, 0.25, 0.25]]]).log().requires_grad_()

    sums = label_smoothed(logits_BTV, torch.tensor([[0]]), smoothing=0.1, pad=-100, spread=spread)
    sums.loss.backward()

    loss = right * math.log(2) + 2 * wrong * math.log(4)
    assert sums.loss.item() == pytest.approx(loss, rel=1e-6)
    assert sums.nll.item() == pytest.approx(math.log(2), rel=1e-6)
    assert logits_BTV.grad is not None
    assert logits_BTV.grad.flatten().tolist() == pytest.approx(
        [0.5 - right, 0.25 - wrong, 0.25 - wrong], rel=1e-5
    )


def test_the_chunk_size_does_not_change_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of one row, or with a remainder, give the result of a single chunk."""
    logits_BTV, target_BT = drawn(3, 7, vocabulary=11)
    together = label_smoothed(logits_BTV, target_BT, smoothing=0.1, pad=PAD).loss
    (wanted,) = torch.autograd.grad(together, logits_BTV)

    for budget in (1, 55):
        monkeypatch.setattr(loss_module, "CACHED", budget)
        loss = label_smoothed(logits_BTV, target_BT, smoothing=0.1, pad=PAD).loss
        (gradient,) = torch.autograd.grad(loss, logits_BTV)

        torch.testing.assert_close(loss, together)
        torch.testing.assert_close(gradient, wanted)


def test_bfloat16_logits_are_summed_in_float32() -> None:
    """bfloat16 logits give the loss of the same numbers in float32, without rounding."""
    logits_BTV, target_BT = drawn(4, 5, vocabulary=50, dtype=torch.bfloat16)

    sums = label_smoothed(logits_BTV, target_BT, smoothing=0.1, pad=PAD)
    sums.loss.backward()

    wide_BTV = logits_BTV.detach().float().requires_grad_()
    wide = label_smoothed(wide_BTV, target_BT, smoothing=0.1, pad=PAD)
    wide.loss.backward()
    assert sums.loss.dtype == torch.float32
    torch.testing.assert_close(sums.loss, wide.loss)
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

    sums = label_smoothed(logits_BTV, target_BT, smoothing=0.1, pad=PAD)
    changed = label_smoothed(changed_BTV, target_BT, smoothing=0.1, pad=PAD)
    changed.loss.backward()

    assert torch.equal(sums.loss, changed.loss)
    assert torch.equal(sums.nll, changed.nll)
    assert changed_BTV.grad is not None
    assert not changed_BTV.grad[:, 2:].any()
    assert changed_BTV.grad[:, :2].all()


def test_padding_may_be_an_id_outside_the_vocabulary() -> None:
    """A padding id outside the vocabulary works, such as -100, which torch ignores by default."""
    logits_BTV, _ = drawn(1, 2, vocabulary=4)

    sums = label_smoothed(logits_BTV, torch.tensor([[3, -100]]), smoothing=0.1, pad=-100)
    sums.loss.backward()

    alone = label_smoothed(logits_BTV[:, :1], torch.tensor([[3]]), smoothing=0.1, pad=-100)
    assert torch.equal(sums.loss, alone.loss)
    assert sums.tokens.item() == 1


def test_a_batch_of_padding_sums_to_zero() -> None:
    """Without tokens the loss and the gradient are zero; nothing is divided by zero."""
    logits_BTV, _ = drawn(1, 3, vocabulary=6)

    sums = label_smoothed(logits_BTV, torch.zeros(1, 3).long(), smoothing=0.1, pad=PAD)
    sums.loss.backward()

    assert (sums.loss.item(), sums.nll.item(), sums.tokens.item()) == (0.0, 0.0, 0)
    assert logits_BTV.grad is not None
    assert not logits_BTV.grad.any()


def test_the_likelihood_is_detached_and_the_graph_can_be_walked_twice() -> None:
    """`nll` has no gradient; with `retain_graph` a second backward pass gives the same gradient."""
    logits_BTV, target_BT = drawn(2, 3, vocabulary=6)
    sums = label_smoothed(logits_BTV, target_BT, smoothing=0.1, pad=PAD)

    (first,) = torch.autograd.grad(sums.loss, logits_BTV, retain_graph=True)
    (second,) = torch.autograd.grad(sums.loss, logits_BTV)

    assert not sums.nll.requires_grad
    assert torch.equal(first, second)


def test_a_forbidden_word_costs_nothing_without_smoothing() -> None:
    """A logit of minus infinity is valid if its token is not a target."""
    logits_BTV = torch.tensor([[[0.0, 0.0, -math.inf]]], requires_grad=True)

    sums = label_smoothed(logits_BTV, torch.tensor([[1]]), smoothing=0.0, pad=PAD)
    sums.loss.backward()

    assert sums.loss.item() == pytest.approx(math.log(2))
    assert logits_BTV.grad is not None
    assert logits_BTV.grad.flatten().tolist() == pytest.approx([0.5, -0.5, 0.0])


@pytest.mark.parametrize("smoothing", [-0.1, 1.0])
def test_an_invalid_smoothing_is_refused(smoothing: float) -> None:
    """Smoothing must leave some probability mass to the target."""
    with pytest.raises(ValueError, match="is not in"):
        label_smoothed(torch.zeros(1, 1, 3), torch.ones(1, 1).long(), smoothing=smoothing, pad=PAD)


def test_targets_of_another_shape_are_refused() -> None:
    """A transposed batch has the same number of rows but must be an error."""
    with pytest.raises(ValueError, match="do not fit labels"):
        label_smoothed(torch.zeros(2, 3, 4), torch.ones(3, 2).long(), smoothing=0.1, pad=PAD)


def test_a_graphs_own_losses_are_added_for_each_token() -> None:
    """By hand: 3 tokens, losses 1 + 2 + 4, weight 0.1; the gradient flows into the losses."""
    logits, target = drawn(1, 4, vocabulary=5)
    target[0] = torch.tensor([PAD, 1, 2, 3])
    sums = label_smoothed(logits, target, smoothing=0.0, pad=PAD)
    own = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor(4.0, requires_grad=True)

    more = with_auxiliary(sums, own, 0.1)

    assert more.auxiliary is not None
    assert more.auxiliary.item() == 21.0
    assert (more.loss - sums.loss).item() == pytest.approx(2.1)
    assert [g.tolist() for g in torch.autograd.grad(more.loss, own)] == [
        pytest.approx([0.3, 0.3]),
        pytest.approx(0.3),
    ]
    assert with_auxiliary(sums, (), 0.1) is sums
