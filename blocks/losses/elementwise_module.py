"""Losses of single numbers: binary cross-entropy and mean squared error."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from .cross_entropy_module import all_of, counted, summed, wired


class BinaryCrossEntropy(nn.Module):
    """Binary cross-entropy of logits and labels.

    Source: Clark et al. 2020, section 2; Goodfellow et al. 2016, section 6.2.2.2.
    """

    def forward(
        self,
        logits: Tensor,
        labels: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        classes: Tensor | None = None,
        truth: Tensor | None = None,
    ) -> Tensor:
        """Compare logits with labels, which are in one of three forms.

        Args:
            logits: unnormalized scores [..., V], or [..., 1] if there is one label for each item.
            labels: numbers from 0 to 1, [..., V].
            mask: [...], true at the items that count; None if all count.
            classes: classes 0 and 1, [...], of which negative ones do not count.
            truth: [...], true for 1.

        Returns:
            The sum over items of the mean over their scores, in float32.
        """
        scores, right = logits.float(), wired(labels, classes, truth).float()
        if classes is not None:
            mask = counted(classes, mask)
        if labels is None:
            right = right.clamp(min=0.0)[..., None]
        losses = F.binary_cross_entropy_with_logits(scores, right, reduction="none")
        return summed(losses.mean(-1), mask)

    def weight(
        self,
        labels: Tensor | None = None,
        classes: Tensor | None = None,
        truth: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Return the number of items that count; of `labels` and `truth`, a mask needs neither."""
        if classes is not None:
            return counted(classes, mask).sum()
        if mask is not None:
            return mask.sum()
        return all_of(wired(labels, truth) if labels is None else labels[..., 0])


class MeanSquaredError(nn.Module):
    """Mean squared error of vectors or numbers.

    Source: Bishop 2006, section 3.1.1.
    """

    def forward(
        self,
        x: Tensor,
        target: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        numbers: Tensor | None = None,
    ) -> Tensor:
        """Compare predictions with their targets.

        Args:
            x: the predictions [..., D]; [..., 1] for numbers.
            target: vectors [..., D].
            mask: [...], true at the items that count; None if all count.
            numbers: [...], instead of `target`.

        Returns:
            The sum over items of the mean squared difference, in float32.
        """
        expected = wired(target, numbers).float()
        if numbers is not None:
            expected = expected[..., None]
        return summed((x.float() - expected).square().mean(-1), mask)

    def weight(
        self,
        target: Tensor | None = None,
        numbers: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Return the number of items that count; with a mask, the target is not needed."""
        if mask is not None:
            return mask.sum()
        return all_of(wired(target, numbers) if target is None else target[..., 0])
