"""Needs: what a param of a block requires to have any effect, as data next to the param."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class Needs:
    """Marks a param that has an effect only with some values of another param.

    `Annotated[Base, Needs("position", ("rotary",))]` marks a param that only `rotary` positions
    read.  The checker reports such a param (P08) if a spec sets it to another value than its
    default where nothing reads it.
    """

    param: str
    """The other param."""
    values: tuple[Any, ...] = ()
    """Its values with which the marked param has an effect."""
    least: int = 0
    """Instead of `values`: the smallest number with which the marked param has an effect."""


@dataclass(frozen=True, slots=True)
class Unwired:
    """Marks a param that has an effect only if a port of the block is not wired."""

    port: str


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
    for name, field in type(params).model_fields.items():
        if field.is_required() or getattr(params, name) == field.default:
            continue
        for mark in field.metadata:
            if isinstance(mark, Needs | Unwired) and not _holds(mark, params, wired):
                yield Idle(name, mark)
                break


def _holds(mark: Needs | Unwired, params: BaseModel, wired: Collection[str]) -> bool:
    if isinstance(mark, Unwired):
        return mark.port not in wired
    value = getattr(params, mark.param)
    return value in mark.values if mark.values else value >= mark.least
