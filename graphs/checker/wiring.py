"""Wires: report wires to unknown values, and nodes and inputs that nothing reads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ...specs.findings import did_you_mean, nearest, pointer, respelled
from ...specs.form import RepeatNode, UseNode
from ...specs.text.edits import Fix, removing, replacing
from ..ir.value_type import Misfit, fit
from .ports import Checker, Given


def report_unknown(
    checker: Checker, value: str, nodes: Collection[str], inputs: Collection[str], at: str
) -> None:
    """Report a wire to a value that no node or input of a scope provides."""
    source, dot, _ = value.partition(".")
    kind, near = _meant(value, nodes, inputs)
    if dot and source in inputs:
        problem, help_ = f"'{source}' is an input, not a node", f"write only '{source}'"
    elif dot:
        problem, help_ = f"unknown node '{source}'", did_you_mean(source, nodes)
    elif source in nodes:
        problem, help_ = f"'{value}' is a node, not a value", f"name its port, as in '{value}.y'"
    else:
        problem = f"unknown value '{value}'"
        help_ = did_you_mean(value, inputs)
        if kind == "node":
            help_ = f"did you mean a port of node '{near}', as in '{near}.y'?"
    checker.report(
        code="N02",
        at=at,
        problem=problem,
        help=help_ or "name an input or 'node.port'",
        fix=_meaning(value, nodes, inputs, at),
    )


def _meaning(value: str, nodes: Collection[str], inputs: Collection[str], at: str) -> Fix | None:
    """Return the fix that writes the value which an unknown one most likely means."""
    source, dot, port = value.partition(".")
    if dot and source in inputs:
        return replacing(at, source, certain=True)
    if dot:
        return respelled(at, source, nodes, f"{{}}.{port}")
    return None if source in nodes else respelled(at, value, inputs)


def _meant(value: str, nodes: Collection[str], inputs: Collection[str]) -> tuple[str, str]:
    """Return whether a value most likely means a node or an input, and which one.

    Both are ``""`` if the value is not similar to the name of either.
    """
    source, dot, _ = value.partition(".")
    sides = [("node", nodes), ("input", inputs)] if dot else [("input", inputs), ("node", nodes)]
    for kind, names in sides:
        if source in names:
            return kind, source
    for kind, names in sides:
        near = nearest(source, names)
        if near:
            return kind, near
    return "", ""


def report_unused(
    checker: Checker,
    nodes: Mapping[str, UseNode | RepeatNode],
    outputs: Mapping[str, str],
    inputs: Collection[str],
    given: Mapping[str, Given | None],
    at: str,
) -> None:
    """Report nodes and inputs that nothing reads.

    The value that a misspelled wire most likely meant counts as read.  If a wire is not similar
    to any value, it may have meant each of them, so nothing is reported until it is fixed.  A
    value that would fit a port whose wire is missing or wrong is not reported either.

    Args:
        checker: the state that the scopes share.
        nodes: the nodes as written.
        outputs: output port to the value that it returns.
        inputs: names of the scope's inputs.
        given: value to its type, where that is known.
        at: JSON Pointer of the scope.
    """
    values = {*outputs.values(), *(value for node in nodes.values() for value in node.in_.values())}
    read = {_meant(value, nodes, inputs) for value in values}
    if ("", "") in read:
        return
    by_source: dict[str, list[str]] = {}
    for name in given if checker.wanted else ():
        by_source.setdefault(name.partition(".")[0], []).append(name)
    for key, node in nodes.items():
        if isinstance(node, RepeatNode) and not (node.carry or node.collect):
            continue  # it has no outputs, which W10 reports
        if ("node", key) not in read and not _suits(checker, by_source.get(key, []), given):
            checker.report(
                code="W03",
                at=at + pointer("nodes", key),
                problem=f"nothing reads node '{key}'",
                help="wire one of its outputs, or remove it",
                fix=removing(at + pointer("nodes", key)),
            )
    # A template that replaces a single copy gets the wires of all copies, and may ignore some.
    for key in () if checker.inside and checker.inside[-1] in checker.stand_ins else inputs:
        if ("input", key) not in read and not _suits(checker, [key], given):
            checker.report(
                code="W04",
                at=at + pointer("inputs", key),
                problem=f"nothing reads input '{key}'",
                help="wire it, or remove it",
            )


def _suits(checker: Checker, names: Iterable[str], given: Mapping[str, Given | None]) -> bool:
    """Return whether one of some values may fit a port in this scope without a valid wire."""
    types = [value.type for name in names if (value := given.get(name)) is not None]
    if not types:
        return bool(checker.wanted)
    return any(
        not isinstance(fit(wanted, type_, {}, {}), Misfit)
        for wanted in checker.wanted
        for type_ in types
    )
