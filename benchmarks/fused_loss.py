"""The loss of a translation model as in training: fused with its output projection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from weft.blocks.kernels.losses.fused_linear_cross_entropy import (
    LinearOutput,
    fused_linear_cross_entropy,
    has_triton,
)
from weft.blocks.kernels.precision import operand

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
        model: model with the output `logits`, of a graph from `leave_projection`.
        head: name of the linear map that computes `logits`.
        inputs: inputs of the model.
        target: target ids [B, T], padding 0.
        counts: number of non-padding tokens by the mask of an axis, or, without a mask, by its ids,
            if known: an unpadded model then need not read it from its device.
    """
    batched: Any = getattr(model, "batched", None)
    if counts is not None and batched is not None:
        batched.expect(counts)
    last: Any = model.get_submodule(head)
    on_gpu = target.device.type == "cuda"
    x = model(**inputs, projected=False)["logits"]
    output = LinearOutput(x, last.weight, last.bias, operand(last, "weight"))
    loss, _ = fused_linear_cross_entropy(
        output,
        target,
        target != 0,
        smoothing=SMOOTHING,
        spread="vocabulary",
        kernel=last.product_kernel,
        normalizer="triton" if on_gpu and has_triton() else "torch",
    )
    return loss
