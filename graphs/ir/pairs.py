"""Pairs of positions: values that have the step axis twice, first of queries, then of keys.

A step computes some positions.  Of a value with pairs, it computes the rows of these queries, with
the keys of all positions so far.  A block that is written out and pairs a value with its queries
therefore stores that value from step to step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from .block_type import Signature
from .leads import lead_of_axis
from .value_type import ValueType


def step_names(type_: ValueType, axes: Mapping[str, Any], step_axis: str | None) -> list[str]:
    """Return the names of a port's axes that stand for the step axis, in order.

    Positions before the first step, as in `T+1`, belong to it.

    Args:
        type_: the type of a port of a block.
        axes: what the names stand for.
        step_axis: the step axis.
    """
    if step_axis is None:
        return []
    pairs = _axes(type_, axes)
    return [name for name, axis in pairs if lead_of_axis(axis, step_axis) is not None]


def _axes(type_: ValueType, axes: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield every axis of a port as a name and what it stands for."""
    for name in type_.axes:
        if name == "...":
            yield from ((f"...{index}", axis) for index, axis in enumerate(axes.get(name, ())))
        else:
            yield str(name), axes.get(str(name), name)


def stored_ports(
    signature: Signature, axes: Mapping[str, Any], wired: Collection[str], step_axis: str | None
) -> tuple[str, ...]:
    """Return the ports whose values a block stores: their step axis is one of keys, or summed.

    Args:
        signature: the ports of a block that is written out.
        axes: what their axis names stand for.
        wired: names of the wired ports.
        step_axis: the step axis; None if the graph does not decode.
    """
    queries = step_names(signature.outputs[0].type, axes, step_axis)[:1]
    if step_axis is None or not queries:
        return ()
    names = {
        port.name: step_names(port.type, axes, step_axis)
        for port in signature.inputs
        if port.name in wired
    }
    if queries not in [keys[:1] for keys in names.values()]:
        return ()
    return tuple(port for port, keys in names.items() if len(keys) == 1 and keys != queries)
