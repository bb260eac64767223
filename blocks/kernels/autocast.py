"""Helpers for modules that call torch's kernels directly: autocast and exclusion from compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import torch
from torch import Tensor

_Function = TypeVar("_Function", bound=Callable[..., object])


def uncompiled(function: _Function) -> _Function:
    """Exclude a function from torch.compile, which would unroll its loop for each length."""
    # Like torch.compiler.disable, but without importing the compiler until it is called.
    return cast("_Function", torch._disable_dynamo(function))  # type: ignore[attr-defined]  # noqa: SLF001


def autocast_dtype(tensor: Tensor) -> torch.dtype | None:
    """Return the autocast dtype for the device of a tensor; None if autocast is not enabled."""
    kind = tensor.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return None


def as_autocast(*tensors: Tensor) -> list[Tensor]:
    """Cast tensors to the autocast dtype if autocast is enabled; otherwise return them as is."""
    dtype = autocast_dtype(tensors[0])
    return list(tensors) if dtype is None else [tensor.to(dtype) for tensor in tensors]
