"""Connectionist temporal classification, summed over the sentences.

Axes: B sentences, S frames, T labels, V classes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.noise import compacted
from .cross_entropy_module import counted


class CTC(nn.Module):
    """Negative log-probability of labels under all their alignments with the frames.

    Source: Graves et al. 2006, sections 3 and 4.
    """

    def __init__(self, blank: int = 0, per: str = "tokens", *, zero_infinity: bool = True) -> None:
        """Set the class of the blank, the unit of `weight`, and what is done with infinity."""
        super().__init__()
        self.blank, self.per, self.zero_infinity = blank, per, zero_infinity

    def forward(
        self,
        logits: Tensor,
        labels: Tensor,
        mask: Tensor | None = None,
        labels_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Compare frames with labels.

        Args:
            logits: unnormalized scores [B, S, V] of the frames.
            labels: [B, T]; negative ones do not count.
            mask: [B, S], false at padding, which follows the frames of a sentence.
            labels_mask: [B, T], true at the labels that count, in any positions.

        Returns:
            The sum over the sentences, in float32, and the same without a gradient.
        """
        kept_BT = counted(labels, labels_mask)
        frames_B = torch.full(labels.shape[:1], logits.size(1), device=logits.device)
        log_p_SBV = F.log_softmax(logits.float(), -1).transpose(0, 1)
        if logits.is_meta:  # torch cannot tell the shape of its result without computing it
            return log_p_SBV.sum(), log_p_SBV.detach().sum()
        each_B = F.ctc_loss(
            log_p_SBV,
            compacted(labels, kept_BT, 0),
            frames_B if mask is None else mask.sum(1),
            kept_BT.sum(1),
            blank=self.blank,
            reduction="none",
            zero_infinity=self.zero_infinity,
        )
        loss = each_B.sum()
        return loss, loss.detach()

    def weight(self, labels: Tensor, labels_mask: Tensor | None = None) -> Tensor:
        """Return the number of labels that count, or of sentences."""
        if self.per == "sentences":
            return torch.full((), labels.size(0), dtype=torch.int64, device=labels.device)
        return counted(labels, labels_mask).sum()
