"""Cross-entropy with label smoothing, summed over the items that count.

The loss is a sum, not a mean: batches contain different numbers of items, so only the caller,
which adds up micro-batches and devices, knows the number to divide by.

Axes in this file, also used as suffixes of tensor names:

    R  rows, one for each item, of the flattened batch
    V  vocabulary
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Spread = Literal["vocabulary", "others"]
"""Classes that share the smoothing mass: all V, or the V - 1 other than the label."""

CACHED = 2**20
"""Logits per chunk on a CPU: 4 MB, so that all passes but the first hit the cache."""
QUEUED = 2**26
"""Logits per chunk on other devices: few kernel launches, but no second copy of all logits."""


def smoothed_cross_entropy(
    logits: Tensor, labels: Tensor, mask: Tensor, *, smoothing: float, spread: Spread
) -> tuple[Tensor, Tensor]:
    """Return the label-smoothed cross-entropy of logits, summed over the items that count.

    With q the smoothed distribution of the labels, the loss of an item is
    -sum_v q_v log p_v.  It is computed as

        (1 - e) * nll + e * (logsumexp(logits) - mean(logits))

    in float32 for logits of any dtype, in chunks of rows, and so is its gradient: the
    gradient is the only new tensor of the size of the logits.  The host does not wait for
    the device.  The gradient cannot be differentiated again.

    Args:
        logits: unnormalized scores [..., V]; any number of leading axes is allowed.
        labels: classes [...]; where `mask` is false, any integers.
        mask: [...], true at the items that count.
        smoothing: probability mass taken from the label, in [0, 1).
        spread: classes that share the mass.  "vocabulary": all V classes including the
            label, which gets 1 - smoothing + smoothing / V (torch's `cross_entropy`).
            "others": the V - 1 other classes, so the label gets 1 - smoothing
            (tensor2tensor, fairseq).

    Returns:
        The loss, and the negative log-likelihood without smoothing, which has no gradient;
        both are 0 if no item counts.

    Raises:
        ValueError: `smoothing` is not in [0, 1), or the shapes do not match.

    Source: Szegedy et al. 2016, section 7, https://arxiv.org/abs/1512.00567
    """
    if logits.shape[:-1] != labels.shape:
        msg = (
            f"logits of shape {tuple(logits.shape)} do not fit labels of shape"
            f" {tuple(labels.shape)}"
        )
        raise ValueError(msg)
    mass = vocabulary_mass(smoothing, spread, logits.size(-1))
    mask_R = mask.flatten()
    # A label that does not count may be outside the vocabulary, such as -100.
    label_R = labels.flatten().masked_fill(~mask_R, 0)
    if torch.compiler.is_compiling():
        return _traced(logits.flatten(0, -2), label_R, mask_R, mass)
    loss, nll = _Smoothed.apply(logits.flatten(0, -2), label_R, mask_R, mass)  # type: ignore[no-untyped-call]
    return loss, nll


def vocabulary_mass(smoothing: float, spread: Spread, vocabulary: int) -> float:
    """Return the smoothing mass for a spread over all V tokens.

    A mass spread over the V - 1 other tokens equals a slightly larger mass over all V.

    Raises:
        ValueError: `smoothing` is not in [0, 1).
    """
    if not 0.0 <= smoothing < 1.0:
        msg = f"smoothing {smoothing} is not in [0, 1)"
        raise ValueError(msg)
    return smoothing if spread == "vocabulary" else smoothing * vocabulary / (vocabulary - 1)


def _traced(
    logits_RV: Tensor, label_R: Tensor, mask_R: Tensor, mass: float
) -> tuple[Tensor, Tensor]:
    """Return both sums by plain operations, which a compiler fuses."""
    log_p_RV = torch.log_softmax(logits_RV, dim=-1, dtype=torch.float32)
    nll_R = -log_p_RV.gather(1, label_R[:, None])[:, 0]
    loss_R = (1.0 - mass) * nll_R
    if mass > 0:  # without smoothing a logit of -inf must not contribute
        loss_R = loss_R - mass * log_p_RV.mean(1)
    loss, nll = (each_R.masked_fill(~mask_R, 0.0).sum() for each_R in (loss_R, nll_R))
    return loss, nll.detach()


class _Smoothed(torch.autograd.Function):
    """Summed smoothed loss and nll; the backward pass reads the logits again."""

    @staticmethod
    def forward(
        ctx: Any, logits_RV: Tensor, target_R: Tensor, mask_R: Tensor, mass: float
    ) -> tuple[Tensor, Tensor]:
        """Return both sums; save one normalizer per row for the backward pass."""
        rows = _rows_at_a_time(logits_RV)
        right_R = logits_RV.new_empty(len(logits_RV), dtype=torch.float32)
        mean_R = torch.zeros_like(right_R)
        for logits_rV, target_r, right_r, mean_r in zip(
            logits_RV.split(rows),
            target_R.split(rows),
            right_R.split(rows),
            mean_R.split(rows),
            strict=True,
        ):
            log_p_rV = torch.log_softmax(logits_rV, dim=-1, dtype=torch.float32)
            right_r.copy_(log_p_rV.gather(1, target_r[:, None])[:, 0])
            if mass > 0:  # without smoothing a logit of -inf must not contribute
                torch.mean(log_p_rV, dim=1, out=mean_r)
        chosen_R = logits_RV.gather(1, target_R[:, None])[:, 0].float()
        ctx.save_for_backward(logits_RV, target_R, mask_R, chosen_R - right_R)
        ctx.mass, ctx.rows = mass, rows
        loss_R = -(1.0 - mass) * right_R - mass * mean_R
        loss = loss_R.masked_fill(~mask_R, 0.0).sum()
        nll = -right_R.masked_fill(~mask_R, 0.0).sum()
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, gradient_of_loss: Tensor, gradient_of_nll: Tensor
    ) -> tuple[Tensor, None, None, None]:
        """Return p - q for each non-padding row, times the gradient of the sum."""
        del gradient_of_nll  # nll is not differentiable, so this is always zero
        logits_RV, target_R, mask_R, normalizer_R = ctx.saved_tensors
        gradient_RV = torch.empty_like(logits_RV)
        full = gradient_RV.dtype == torch.float32
        scratch_rV = logits_RV.new_empty(
            (0 if full else ctx.rows, logits_RV.size(1)), dtype=torch.float32
        )
        weight_R = gradient_of_loss.float() * mask_R
        share = ctx.mass / logits_RV.size(1)
        for logits_rV, target_r, normalizer_r, weight_r, gradient_rV in zip(
            *(
                tensor.split(ctx.rows)
                for tensor in (logits_RV, target_R, normalizer_R, weight_R, gradient_RV)
            ),
            strict=True,
        ):
            # Copy first: a subtraction with mixed dtypes is several times slower on a CPU.
            into = gradient_rV if full else scratch_rV[: len(target_r)]
            p_rV = into.copy_(logits_rV).sub_(normalizer_r[:, None]).exp_()
            p_rV.sub_(share)
            p_rV.scatter_add_(1, target_r[:, None], p_rV.new_full((len(p_rV), 1), ctx.mass - 1.0))
            p_rV.mul_(weight_r[:, None])
            if not full:
                gradient_rV.copy_(p_rV)
        return gradient_RV, None, None, None


def _rows_at_a_time(logits_RV: Tensor) -> int:
    """Return the number of rows per chunk, at least 1."""
    budget = CACHED if logits_RV.device.type == "cpu" else QUEUED
    return max(1, min(len(logits_RV), budget // logits_RV.size(1)))
