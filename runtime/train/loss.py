"""Cross-entropy with label smoothing, summed over the target tokens.

The loss is a sum, not a mean: batches contain different numbers of tokens, so only the
caller, which adds up micro-batches and devices, knows the number to divide by.

Axes in this file, also used as suffixes of tensor names:

    B  sequences in the batch        V  vocabulary
    T  target positions              R  rows, B * T, of the flattened batch

Not here: perplexity and other metrics of a trained model (`../tasks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..data.settings import Settings

_CACHED = 2**20
"""Logits per chunk on a CPU: 4 MB, so that all passes but the first hit the cache."""
_QUEUED = 2**26
"""Logits per chunk on other devices: few kernel launches, but no second copy of all logits."""


class LossSettings(Settings):
    """Settings of the loss."""

    smoothing: float = Field(default=0.1, ge=0.0, lt=1.0)
    """Label smoothing: probability mass taken from the target token and spread over others."""
    spread: Literal["vocabulary", "others"] = "vocabulary"
    """Tokens that share the smoothing mass: all V tokens (torch), or the V - 1 tokens other than
    the target (tensor2tensor, fairseq)."""
    auxiliary: float = Field(default=0.01, ge=0.0, allow_inf_nan=False)
    """Weight of the outputs of kind `loss`, such as the load balancing of experts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSums:
    """Losses of one batch, summed over its target tokens; scalars on the device of the logits."""

    loss: Tensor
    """Smoothed cross-entropy in nats, in float32; call `backward` on this one."""
    nll: Tensor
    """Plain negative log-likelihood in nats, detached; perplexity is exp(nll / tokens)."""
    tokens: Tensor
    """Number of non-padding target tokens, as an integer."""
    auxiliary: Tensor | None = None
    """Auxiliary loss of the graph, unweighted, times `tokens`, detached; None if the graph has
    none.  `loss` includes it, weighted."""


def label_smoothed(
    logits_BTV: Tensor,
    target_BT: Tensor,
    *,
    smoothing: float,
    pad: int,
    spread: Literal["vocabulary", "others"] = "vocabulary",
) -> LossSums:
    """Return the label-smoothed cross-entropy of logits, summed over non-padding targets.

    With q the smoothed target distribution, the loss of a token is
    -sum_v q_v log p_v.  It is computed as

        (1 - e) * nll + e * (logsumexp(logits) - mean(logits))

    in float32 for logits of any dtype, in chunks of rows, and so is its gradient: the
    gradient is the only new tensor of the size of the logits.  The host does not wait for
    the device.  The gradient cannot be differentiated again.

    Args:
        logits_BTV: unnormalized scores; any number of leading axes is allowed.
        target_BT: target ids, of the shape of the leading axes.
        smoothing: probability mass taken from the target, in [0, 1).
        pad: id in `target_BT` to ignore.
        spread: tokens that share the mass.  "vocabulary": all V tokens including the
            target, which gets 1 - smoothing + smoothing / V (torch's `cross_entropy`).
            "others": the V - 1 other tokens, so the target gets 1 - smoothing
            (tensor2tensor, fairseq).

    Returns:
        The sums; all are zero if every target is padding.

    Raises:
        ValueError: `smoothing` is not in [0, 1), or the shapes do not match.

    Source: Szegedy et al. 2016, section 7, https://arxiv.org/abs/1512.00567
    """
    if logits_BTV.shape[:-1] != target_BT.shape:
        msg = (
            f"logits of shape {tuple(logits_BTV.shape)} do not fit targets of shape"
            f" {tuple(target_BT.shape)}"
        )
        raise ValueError(msg)
    mass = vocabulary_mass(smoothing, spread, logits_BTV.size(-1))
    mask_R = (target_BT != pad).flatten()
    # The padding id may be outside the vocabulary, such as -100.
    target_R = target_BT.flatten().masked_fill(~mask_R, 0)
    loss, nll = _Smoothed.apply(logits_BTV.flatten(0, -2), target_R, mask_R, mass)  # type: ignore[no-untyped-call]
    return LossSums(loss=loss, nll=nll, tokens=mask_R.sum())


def vocabulary_mass(
    smoothing: float, spread: Literal["vocabulary", "others"], vocabulary: int
) -> float:
    """Return the smoothing mass for a spread over all V tokens.

    A mass spread over the V - 1 other tokens equals a slightly larger mass over all V.

    Raises:
        ValueError: `smoothing` is not in [0, 1).
    """
    if not 0.0 <= smoothing < 1.0:
        msg = f"smoothing {smoothing} is not in [0, 1)"
        raise ValueError(msg)
    return smoothing if spread == "vocabulary" else smoothing * vocabulary / (vocabulary - 1)


def with_auxiliary(sums: LossSums, losses: Sequence[Tensor], weight: float) -> LossSums:
    """Add the auxiliary losses of the graph to the loss of a batch.

    Args:
        sums: losses of the predictions.
        losses: outputs of kind `loss`, of any shape; all elements are summed.
        weight: weight of that sum, per target token.
    """
    if not losses:
        return sums
    auxiliary = torch.stack([loss.float().sum() for loss in losses]).sum() * sums.tokens
    return replace(sums, loss=sums.loss + weight * auxiliary, auxiliary=auxiliary.detach())


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
        scratch_rV = logits_RV.new_empty((ctx.rows, logits_RV.size(1)), dtype=torch.float32)
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
    budget = _CACHED if logits_RV.device.type == "cpu" else _QUEUED
    return max(1, budget // logits_RV.size(1))
