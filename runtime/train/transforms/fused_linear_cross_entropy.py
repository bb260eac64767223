"""Fused linear cross-entropy: let the loss compute the output projection of a model.

The computation is `blocks/kernels/fused_linear_cross_entropy.py`; here a model leaves its last
linear map to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from torch import Tensor, nn

from ....blocks.kernels.losses.fused_linear_cross_entropy import LinearOutput
from ....blocks.kernels.losses.fused_linear_cross_entropy import fused_linear_cross_entropy as fused
from ..loss import LossSums, label_smoothed


@contextmanager
def bypassed(head: nn.Module) -> Iterator[None]:
    """Make a module return its input, so that a loss can do its work instead.

    Hooks and wrappers of the surrounding model see an ordinary call.
    """
    head.forward = _identity
    try:
        yield
    finally:
        del head.forward


def _identity(x: Tensor) -> Tensor:
    return x


def fused_linear_cross_entropy(
    x_BTD: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    target_BT: Tensor,
    *,
    smoothing: float,
    pad: int,
    spread: Literal["vocabulary", "others"] = "vocabulary",
) -> LossSums:
    """Return `label_smoothed` of the logits x W^T + b without storing all logits.

    Args:
        x_BTD: input of the projection; any number of leading axes is allowed.
        weight_VD: weight of the projection.
        bias_V: bias of the projection.
        target_BT: target ids, of the shape of the leading axes.
        smoothing: as for `label_smoothed`.
        pad: as for `label_smoothed`.
        spread: as for `label_smoothed`.

    Raises:
        ValueError: `smoothing` is not in [0, 1), or the shapes do not match.
    """
    mask_BT = target_BT != pad
    output = LinearOutput(x_BTD, weight_VD, bias_V)
    loss, nll = fused(output, target_BT, mask_BT, smoothing=smoothing, spread=spread)
    return LossSums(loss=loss, nll=nll, tokens=mask_BT.sum())


def run_and_compare(
    model: nn.Module,
    head: str | None,
    inputs: Mapping[str, Tensor],
    target_BT: Tensor,
    *,
    smoothing: float,
    pad: int,
    spread: Literal["vocabulary", "others"],
    counts: Mapping[str, int] | None = None,
) -> tuple[dict[str, Tensor], LossSums]:
    """Run a model and compute the loss of its output `logits`.

    Args:
        model: model as built, or wrapped for distributed training.
        head: path of the linear map that computes `logits`, to be fused with the loss; None if
            `logits` is not the output of a linear map.
        inputs: inputs of the model.
        target_BT: target ids.
        smoothing: as for `label_smoothed`.
        pad: as for `label_smoothed`.
        spread: as for `label_smoothed`.
        counts: number of non-padding tokens of each input, if known: an unpadded model then
            need not read it from its device.

    Returns:
        The outputs of the model, without `logits` if `head` is given, and the losses.
    """
    inner: Any = getattr(
        model, "module", model
    )  # wrappers such as DDP store the model under this name
    if counts is not None and hasattr(inner, "expect"):
        inner.expect(counts)
    if head is None:
        outputs: dict[str, Tensor] = model(**inputs)
        logits = outputs["logits"]
        return outputs, label_smoothed(
            logits, target_BT, smoothing=smoothing, pad=pad, spread=spread
        )
    last: Any = inner.get_submodule(head)
    with bypassed(last):
        outputs = dict(model(**inputs))
    read_BTD = outputs.pop("logits")
    return outputs, fused_linear_cross_entropy(
        read_BTD, last.weight, last.bias, target_BT, smoothing=smoothing, pad=pad, spread=spread
    )
