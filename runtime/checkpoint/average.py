"""Checkpoint averaging: the mean of the weights of several checkpoints.

Source: Vaswani et al. 2017, section 6.1 (the last 5 checkpoints of the base model,
the last 20 of the big one), https://arxiv.org/abs/1706.03762

Not here: the choice of the checkpoints (`../train/retention.py`) and their files
(`checkpoint.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ...specs.findings import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

_ONE_RUN = "average only checkpoints of the same run"


def average_weights(weights: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of each weight.

    Args:
        weights: one mapping per checkpoint, oldest first, all with the same keys.

    Returns:
        The mean of floating-point tensors, summed in float64 and rounded once to the
        dtype of the first; other tensors (counters, tables of indices) from the last
        checkpoint.  No tensor shares memory with the input.

    Raises:
        InputError: there are no checkpoints, or two differ in their keys, or in the
            shape or dtype of a weight.
    """
    if not weights:
        msg = "no weights to average"
        raise InputError(msg)
    first = weights[0]
    for number, other in enumerate(weights[1:], start=2):
        if difference := sorted(first.keys() ^ other.keys()):
            have, lack = (1, number) if difference[0] in first else (number, 1)
            msg = f"weight '{difference[0]}' is in checkpoint {have} but not in checkpoint {lack}"
            raise InputError(msg, help=_ONE_RUN)
        for key, tensor in first.items():
            if (tensor.shape, tensor.dtype) != (other[key].shape, other[key].dtype):
                msg = (
                    f"weight '{key}' is {_described(tensor)} in checkpoint 1 "
                    f"but {_described(other[key])} in checkpoint {number}"
                )
                raise InputError(msg, help=_ONE_RUN)
    return {key: _mean([tensors[key] for tensors in weights]) for key in first}


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    """Return the mean of floating-point tensors, or a copy of the last tensor of other dtypes."""
    if not tensors[0].is_floating_point():
        return tensors[-1].detach().clone()
    total = tensors[0].detach().to(torch.float64, copy=True)
    for tensor in tensors[1:]:
        total += tensor.detach().to(total.device)
    return total.div_(len(tensors)).to(tensors[0].dtype)


def _described(tensor: Tensor) -> str:
    """Return dtype and shape, such as ``float32[2, 3]``."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
