"""Precision: what torch does around operators, where a module has to do it itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import torch
from torch import Tensor

_Function = TypeVar("_Function", bound=Callable[..., object])


def uncompiled(function: _Function) -> _Function:
    """Keep torch.compile out: it would write every turn of a loop out, anew for each length."""
    # As torch.compiler.disable, but what compiles is not loaded before it is called.
    return cast("_Function", torch._disable_dynamo(function))  # type: ignore[attr-defined]  # noqa: SLF001


def as_autocast(*tensors: Tensor) -> list[Tensor]:
    """Return tensors in autocast's precision where that is on, else as they are."""
    kind = tensors[0].device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return [tensor.to(torch.get_autocast_dtype(kind)) for tensor in tensors]
    return list(tensors)
