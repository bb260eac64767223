"""The loss of a translation model as in training: fused with its output projection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from weft.blocks.kernels.losses.fused_linear_cross_entropy import (
    LinearOutput,
    fused_linear_cross_entropy,
)
from weft.runtime.train.transforms.fused_linear_cross_entropy import bypassed

SMOOTHING = 0.1


def fused_loss(
    model: nn.Module,
    head: str,
    inputs: Mapping[str, Tensor],
    target: Tensor,
    counts: Mapping[str, int] | None = None,
) -> Tensor:
    """Run a model and return its label-smoothed loss, summed over the targets.

    Args:
        model: model with the output `logits`.
        head: name of the linear map that computes `logits`.
        inputs: inputs of the model.
        target: target ids [B, T], padding 0.
        counts: number of non-padding tokens of each input, if known: an unpadded model then need
            not read it from its device.
    """
    inner: Any = model
    if counts is not None and hasattr(inner, "expect"):
        inner.expect(counts)
    last: Any = model.get_submodule(head)
    with bypassed(last):
        x = model(**inputs)["logits"]
    output = LinearOutput(x, last.weight, last.bias)
    loss, _ = fused_linear_cross_entropy(
        output, target, target != 0, smoothing=SMOOTHING, spread="vocabulary"
    )
    return loss
