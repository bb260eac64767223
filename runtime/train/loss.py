"""Cross-entropy with label smoothing, summed over the target tokens.

The loss is a sum, not a mean: batches contain different numbers of tokens, so only the
caller, which adds up micro-batches and devices, knows the number to divide by.

Axes in this file, also used as suffixes of tensor names:

    B  sequences in the batch        V  vocabulary
    T  target positions

Not here: perplexity and other metrics of a trained model (`../tasks`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from ...blocks.kernels.losses.cross_entropy import smoothed_cross_entropy
from ..data.settings import Settings


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
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    """Further values to report by name, times `tokens`, detached."""


def label_smoothed(
    logits_BTV: Tensor,
    target_BT: Tensor,
    *,
    smoothing: float,
    pad: int,
    spread: Literal["vocabulary", "others"] = "vocabulary",
) -> LossSums:
    """Return the label-smoothed cross-entropy of logits, summed over non-padding targets.

    Args:
        logits_BTV: unnormalized scores; any number of leading axes is allowed.
        target_BT: target ids, of the shape of the leading axes.
        smoothing: as for `smoothed_cross_entropy` in `blocks/kernels/cross_entropy.py`.
        pad: id in `target_BT` to ignore; it may be outside the vocabulary.
        spread: as for `smoothed_cross_entropy`.

    Returns:
        The sums; all are zero if every target is padding.

    Raises:
        ValueError: `smoothing` is not in [0, 1), or the shapes do not match.
    """
    mask_BT = target_BT != pad
    loss, nll = smoothed_cross_entropy(
        logits_BTV, target_BT, mask_BT, smoothing=smoothing, spread=spread
    )
    return LossSums(loss=loss, nll=nll, tokens=mask_BT.sum())


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
