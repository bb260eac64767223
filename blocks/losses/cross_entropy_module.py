"""Cross-entropy with label smoothing, summed over the items that count."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..kernels.linear import Product
from ..kernels.losses.cross_entropy import Spread, smoothed_cross_entropy
from ..kernels.losses.fused_linear_cross_entropy import (
    LinearOutput,
    LossKernel,
    fused_linear_cross_entropy,
)


def counted(labels: Tensor, mask: Tensor | None) -> Tensor:
    """Return a mask of the items that count: a label that is not negative, and a true mask.

    Args:
        labels: classes, or a mask of items.
        mask: true at the items that count; None if all count.
    """
    valid = labels if labels.dtype == torch.bool else labels >= 0
    return valid if mask is None else valid & mask


def summed(loss: Tensor, mask: Tensor | None) -> Tensor:
    """Return the sum of the losses of items, in float32, where a mask of their shape is true."""
    return (loss if mask is None else loss.masked_fill(~mask, 0.0)).sum()


def wired(*alternatives: Tensor | None) -> Tensor:
    """Return the value of the one port that is wired, of several that exclude each other.

    Raises:
        ValueError: none or several of them are wired.
    """
    tensors = [tensor for tensor in alternatives if tensor is not None]
    if len(tensors) != 1:
        msg = f"{len(tensors)} of the ports with the labels are given, not one"
        raise ValueError(msg)
    return tensors[0]


def all_of(like: Tensor) -> Tensor:
    """Return the number of elements of a tensor, on its device."""
    return torch.full((), like.numel(), dtype=torch.int64, device=like.device)


class CrossEntropy(nn.Module):
    """Cross-entropy of logits and labels.

    Source: Szegedy et al. 2016, section 7; Vaswani et al. 2017, section 5.4.
    """

    product_kernel: Product = "torch"
    """Kernel of its products in float32 on the CPU, where it computes a linear map."""
    loss_kernel: LossKernel = "torch"
    """Kernel of the softmax and its gradient, where it computes a linear map."""

    def __init__(self, label_smoothing: float = 0.0, spread: Spread = "vocabulary") -> None:
        """Set the smoothing, which also applies in evaluation: `nll` is without it."""
        super().__init__()
        self.label_smoothing = label_smoothing
        self.spread: Spread = spread

    def forward(
        self,
        logits: Tensor | LinearOutput,
        labels: Tensor | None = None,
        mask: Tensor | None = None,
        items: Tensor | None = None,  # noqa: ARG002 - only `weight` needs it
        *,
        classes: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Compare logits [..., V] with labels.

        Args:
            logits: unnormalized scores, or the linear map that would compute them: then the
                loss computes it in chunks, and all logits are never stored.
            labels: the right ids [...]; negative ones do not count.
            mask: [...], true at the items that count; None if all count.
            items: what each row counts in the mean, [B].
            classes: the right classes [...], instead of `labels`.

        Returns:
            The loss and the negative log-likelihood without smoothing, both summed over the
            items that count, in float32.
        """
        labels = wired(labels, classes)
        mask, smoothing, spread = counted(labels, mask), self.label_smoothing, self.spread
        if isinstance(logits, LinearOutput):
            return fused_linear_cross_entropy(
                logits,
                labels,
                mask,
                smoothing=smoothing,
                spread=spread,
                kernel=self.product_kernel,
                normalizer=self.loss_kernel,
            )
        return smoothed_cross_entropy(logits, labels, mask, smoothing=smoothing, spread=spread)

    def weight(
        self,
        labels: Tensor | None = None,
        classes: Tensor | None = None,
        mask: Tensor | None = None,
        items: Tensor | None = None,
    ) -> Tensor:
        """Return what a batch counts in a mean over several batches: its items that count.

        With `items`, several losses can have the same mean, such as that over the symbols of trees.
        """
        if items is not None:
            return items.sum()
        return counted(wired(labels, classes), mask).sum()
