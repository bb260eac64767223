"""Loss: cross-entropy with label smoothing, as sums over the target tokens.

Sums, not means: batches hold different numbers of tokens, so only the caller
who adds up micro-batches and devices knows what to divide by.

Axes in this file, also used as suffixes of tensor names:

    B  sequences in the batch        V  vocabulary
    T  target positions              R  rows, B * T, of the flattened batch

Not here: perplexity and the other measures of a trained model (`../tasks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_CACHED = 2**20
"""Logits worked on at a time on a CPU: 4 MB, so that every pass but the first hits the cache."""
_QUEUED = 2**26
"""Logits worked on at a time elsewhere: few launches, yet no second copy of all logits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSums:
    """What one batch lost, summed over its target tokens; scalars on the logits' device."""

    loss: Tensor
    """Smoothed cross-entropy in nats, in float32; the one to call `backward` on."""
    nll: Tensor
    """Plain negative log-likelihood in nats, detached; perplexity is exp(nll / tokens)."""
    tokens: Tensor
    """Number of target tokens that are not padding, as an integer."""
    auxiliary: Tensor | None = None
    """What the graph itself adds to the loss, unweighted, times `tokens`, detached; None where
    it adds nothing.  `loss` holds it, weighted."""


def label_smoothed(
    logits_BTV: Tensor,
    target_BT: Tensor,
    *,
    smoothing: float,
    pad: int,
    spread: Literal["vocabulary", "others"] = "vocabulary",
) -> LossSums:
    """Compare predictions with targets, keeping some probability for other words.

    With q the smoothed target distribution the loss of a token is
    -sum_v q_v log p_v.  It is computed as

        (1 - e) * nll + e * (logsumexp(logits) - mean(logits))

    in float32 whatever the logits are in, a few rows at a time, and its gradient
    likewise: nothing of the size of the logits is made but the gradient itself.
    Nothing waits for the device.  The gradient cannot be differentiated again.

    Args:
        logits_BTV: unnormalized scores; any number of leading axes will do.
        target_BT: the right words, of the shape of the leading axes.
        smoothing: probability mass taken from the right word, 0 to below 1.
        pad: the id in `target_BT` that counts for nothing.
        spread: who shares the mass.  "vocabulary": all V words, the right one
            among them, so it keeps 1 - smoothing + smoothing / V (torch's
            `cross_entropy`).  "others": the V - 1 wrong words, so the right one
            keeps 1 - smoothing (tensor2tensor, fairseq).

    Returns:
        The sums; all zero when every target is padding.

    Raises:
        ValueError: `smoothing` is not in [0, 1), or the shapes do not belong together.

    Source: Szegedy et al. 2016, section 7, https://arxiv.org/abs/1512.00567
    """
    if logits_BTV.shape[:-1] != target_BT.shape:
        msg = f"logits {tuple(logits_BTV.shape)} do not fit targets {tuple(target_BT.shape)}"
        raise ValueError(msg)
    mass = vocabulary_mass(smoothing, spread, logits_BTV.size(-1))
    kept_R = (target_BT != pad).flatten()
    # Padding may be an id that is no row of the logits, such as -100.
    target_R = target_BT.flatten().masked_fill(~kept_R, 0)
    loss, nll = _Smoothed.apply(logits_BTV.flatten(0, -2), target_R, kept_R, mass)  # type: ignore[no-untyped-call]
    return LossSums(loss=loss, nll=nll, tokens=kept_R.sum())


def vocabulary_mass(
    smoothing: float, spread: Literal["vocabulary", "others"], vocabulary: int
) -> float:
    """Return the mass that, spread over all words alike, smooths as asked.

    A mass over the V - 1 others is a slightly larger mass over all V.

    Raises:
        ValueError: `smoothing` is not in [0, 1).
    """
    if not 0.0 <= smoothing < 1.0:
        msg = f"smoothing {smoothing} is not in [0, 1)"
        raise ValueError(msg)
    return smoothing if spread == "vocabulary" else smoothing * vocabulary / (vocabulary - 1)


def with_auxiliary(sums: LossSums, losses: Sequence[Tensor], weight: float) -> LossSums:
    """Return what a batch lost with what the graph itself adds to it.

    Args:
        sums: what its predictions lost.
        losses: outputs of kind `loss`, of any shape; all their numbers are added up.
        weight: times which that sum is added, for each target token.
    """
    if not losses:
        return sums
    auxiliary = torch.stack([loss.float().sum() for loss in losses]).sum() * sums.tokens
    return replace(sums, loss=sums.loss + weight * auxiliary, auxiliary=auxiliary.detach())


class _Smoothed(torch.autograd.Function):
    """Summed smoothed loss and nll; the backward pass reads the logits once more."""

    @staticmethod
    def forward(
        ctx: Any, logits_RV: Tensor, target_R: Tensor, kept_R: Tensor, mass: float
    ) -> tuple[Tensor, Tensor]:
        """Return both sums, remembering one normalizer per row."""
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
            if mass > 0:  # without smoothing a forbidden word (-inf) costs nothing
                torch.mean(log_p_rV, dim=1, out=mean_r)
        chosen_R = logits_RV.gather(1, target_R[:, None])[:, 0].float()
        ctx.save_for_backward(logits_RV, target_R, kept_R, chosen_R - right_R)
        ctx.mass, ctx.rows = mass, rows
        loss_R = -(1.0 - mass) * right_R - mass * mean_R
        loss = loss_R.masked_fill(~kept_R, 0.0).sum()
        nll = -right_R.masked_fill(~kept_R, 0.0).sum()
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, of_loss: Tensor, of_nll: Tensor
    ) -> tuple[Tensor, None, None, None]:  # of_nll: not differentiable, always zero
        """Return p - q for each row that counts, times the gradient of the sum."""
        del of_nll
        logits_RV, target_R, kept_R, normalizer_R = ctx.saved_tensors
        gradient_RV = torch.empty_like(logits_RV)
        full = gradient_RV.dtype == torch.float32
        scratch_rV = logits_RV.new_empty((ctx.rows, logits_RV.size(1)), dtype=torch.float32)
        weight_R = of_loss.float() * kept_R
        share = ctx.mass / logits_RV.size(1)
        for logits_rV, target_r, normalizer_r, weight_r, gradient_rV in zip(
            *(
                whole.split(ctx.rows)
                for whole in (logits_RV, target_R, normalizer_R, weight_R, gradient_RV)
            ),
            strict=True,
        ):
            # Copied first: a subtraction that mixes dtypes is several times slower on a CPU.
            into = gradient_rV if full else scratch_rV[: len(target_r)]
            p_rV = into.copy_(logits_rV).sub_(normalizer_r[:, None]).exp_()
            p_rV.sub_(share)
            p_rV.scatter_add_(1, target_r[:, None], p_rV.new_full((len(p_rV), 1), ctx.mass - 1.0))
            p_rV.mul_(weight_r[:, None])
            if not full:
                gradient_rV.copy_(p_rV)
        return gradient_RV, None, None, None


def _rows_at_a_time(logits_RV: Tensor) -> int:
    """Return how many rows to work on at once, at least one."""
    budget = _CACHED if logits_RV.device.type == "cpu" else _QUEUED
    return max(1, budget // logits_RV.size(1))
