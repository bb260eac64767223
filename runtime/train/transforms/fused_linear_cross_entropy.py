"""Fused linear cross-entropy: let the loss compute the output projection of a model.

The computation is `blocks/kernels/losses/fused_linear_cross_entropy.py`; here a model leaves its
last linear map to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn


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
