"""Params that a spec sets, and that have no effect."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from pydantic import BaseModel

from ..ir.block_type import Needs, Unwired


@dataclass(frozen=True, slots=True)
class Idle:
    """A param that was set and has no effect."""

    param: str
    because: Needs | Unwired


def idle_params(params: BaseModel, wired: Collection[str]) -> Iterator[Idle]:
    """Yield the params that differ from their defaults and have no effect.

    Args:
        params: the params of one use of a block.
        wired: names of its wired ports.
    """
    for name, info in type(params).model_fields.items():
        if info.is_required() or getattr(params, name) == info.default:
            continue
        for mark in info.metadata:
            if isinstance(mark, Needs | Unwired) and not _holds(mark, params, wired):
                yield Idle(name, mark)
                break


def _holds(mark: Needs | Unwired, params: BaseModel, wired: Collection[str]) -> bool:
    if isinstance(mark, Unwired):
        return mark.port not in wired
    value = getattr(params, mark.param)
    return value in mark.values if mark.values else value >= mark.least
