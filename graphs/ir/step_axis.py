"""The step axis in values: positions before its first one, and pairs of its positions.

A vector in front of a sequence of T positions gives T+1, of which the first does not move: its
lead is 1.  With a prefix of S positions, the lead is S.  The first step of decoding computes the
lead together with its own positions, and the later steps begin after it.

A step computes some positions.  Of a value that has the axis twice, first of queries, then of keys,
it computes the rows of these queries, with the keys of all positions so far.  A block that is
written out and pairs a value with its queries therefore stores that value from step to step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from .block_type import Signature
from .graph import Graph, Scope
from .traverse import scopes
from .value_type import UNKNOWN, Axis, ValueType, axis_of, names_of, terms_of


def lead_of_axis(axis: Axis, step: str) -> Axis | None:
    """Return the lead of an axis; None if it is not the step axis after some positions.

    >>> lead_of_axis("S+T+1", "T")
    'S+1'
    >>> lead_of_axis("T-1", "T")
    """
    if step not in names_of(axis):
        return None
    terms = terms_of(axis)
    if terms.pop(step) != 1 or any(factor < 0 for factor in terms.values()):
        return None
    return axis_of(terms)


def leads_of(type_: ValueType, step: str) -> list[Axis]:
    """Return the different leads of the axes of a value, most of which have none or one."""
    leads = (lead_of_axis(axis, step) for axis in type_.axes)
    return list(dict.fromkeys(lead for lead in leads if lead is not None))


def lead_of(type_: ValueType, step: str) -> Axis | None:
    """Return the lead of a value; None if it has none, or several."""
    leads = leads_of(type_, step)
    return leads[0] if len(leads) == 1 else None


def moves_along(type_: ValueType, step: str) -> bool:
    """Return whether a value has the step axis, with or without a lead, or may have it."""
    return not {UNKNOWN, "..."}.isdisjoint(type_.axes) or bool(leads_of(type_, step))


def common_lead(types: Iterable[ValueType], step: str) -> Axis:
    """Return the lead that several values share, or 0 if they have different ones."""
    leads = {lead_of(type_, step) for type_ in types} - {None}
    return leads.pop() or 0 if len(leads) == 1 else 0


def longest_lead(root: Scope, step: str) -> Axis:
    """Return a lead that is at least as long as each lead below a scope; 0 if there is none."""
    longest: dict[str, int] = {}
    for type_ in _types(root):
        for lead in leads_of(type_, step):
            for name, factor in terms_of(lead).items():
                longest[name] = max(factor, longest.get(name, 0))
    return axis_of(longest)


def _types(root: Scope) -> Iterator[ValueType]:
    for scope in scopes(root, models=False):
        for node in scope.nodes:
            yield from node.outputs.values()


def measured(
    graph: Graph, moving: Iterable[str], names: Iterable[str]
) -> Mapping[str, tuple[str, str]]:
    """Return inputs that have the lengths of axes, with the Python expressions after their names.

    Axes of which no fixed input has a multiple are left out.

    Args:
        graph: the graph.
        moving: its inputs that move.
        names: the axes.
    """
    lengths: dict[str, tuple[str, str]] = {}
    fixed = {name: type_ for name, type_ in graph.inputs.items() if name not in {*moving}}
    for input_, type_ in fixed.items():
        for dimension, axis in enumerate(type_.axes):
            for name in names_of(axis) & {*names} - lengths.keys():
                terms = terms_of(axis)
                if terms.keys() == {name}:
                    divided = f" // {terms[name]}" if terms[name] > 1 else ""
                    lengths[name] = input_, f".size({dimension}){divided}"
    return lengths


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
