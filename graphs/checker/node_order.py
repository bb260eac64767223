"""Order of the nodes of a scope: resolve the names of wires, and sort the nodes by them.

Reports wires to unknown values, cycles, and what nothing reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from ...specs.findings import did_you_mean, nearest, pointer, respelled
from ...specs.form import RepeatedTemplate, UseNode
from ...specs.text_edits import Fix, removing, replacing
from ..ir.graph import circle_in, cycles, ordered, reached
from ..ir.value_type import Misfit, ValueType, fit
from .records import CheckContext, Checker, Doubts, FindingSet
from .wiring import Given

_Wiring = dict[str, list[str]]
"""Each node and the nodes that it reads."""
_WIRES_SHOWN = 8
"""Maximum number of wires of a cycle in a finding."""
_Nodes = Mapping[str, UseNode | RepeatedTemplate]


def order_nodes(
    context: CheckContext,
    findings: FindingSet,
    nodes: _Nodes,
    inputs: Mapping[str, ValueType | None],
    at: str,
) -> tuple[list[str], dict[str, UseNode | RepeatedTemplate], dict[str, frozenset[str]], bool]:
    """Return the nodes of a scope in topological order, and report wires that have no source.

    A misspelled wire is replaced by the value that it most likely meant, and a cycle is cut.

    Args:
        context: what the check reads.
        findings: receives what is wrong.
        nodes: the nodes as written.
        inputs: the inputs of the scope.
        at: JSON Pointer of the scope.

    Returns:
        The names in order, the nodes with the replaced wires, the ports of each node whose wires
        are guesses, and whether there are cycles.
    """
    wiring: _Wiring = {key: [] for key in nodes}
    guesses: dict[str, dict[str, str]] = {}
    for key, node in nodes.items():
        for port, value in node.in_.items():
            source, dot, _ = value.partition(".")
            if dot and source in nodes:
                wiring[key].append(source)
            elif dot or value not in inputs:
                report_unknown(
                    context, findings, value, nodes, inputs, at + pointer("nodes", key, "in", port)
                )
                guesses.setdefault(key, {})[port] = value
    for key, wires in guesses.items():
        for port, value in wires.items():
            kind, near = _meant(value, nodes, inputs)
            wires[port] = near
            if kind == "node":
                closes = key in reached(near, wiring)
                wires[port] = "" if closes else f"{near}.{value.partition('.')[2]}"
                wiring[key] += [] if closes else [near]
    loops = cycles(wiring)
    for cycle in loops:
        names = ", ".join(f"'{name}'" for name in sorted(cycle))
        findings.report(
            code="W02",
            at=at + pointer("nodes", min(cycle)),
            problem=f"nodes read each other in a cycle: {names}",
            evidence=tuple(_wires_of(nodes, wiring, cycle)),
            help="remove one of these wires; pass a value to the next copy of a repeat with"
            " 'carry'",
        )
        _cut(wiring, cycle)
    live = {
        key: node.model_copy(update={"in_": {**node.in_, **guesses[key]}})
        if key in guesses
        else node
        for key, node in nodes.items()
    }
    guessed = {key: frozenset(wires) for key, wires in guesses.items()}
    return ordered(wiring), live, guessed, bool(loops)


def _wires_of(nodes: _Nodes, wiring: _Wiring, cycle: set[str]) -> Iterator[str]:
    """Yield the wires of a circle in a cycle, each with its node and port."""
    circle = circle_in(cycle, wiring)
    for source, reader in circle[:_WIRES_SHOWN]:
        for port, value in nodes[reader].in_.items():
            if value.partition(".")[0] == source:
                yield f"'{reader}' reads {value} at port '{port}'"
                break
    if len(circle) > _WIRES_SHOWN:
        yield f"and {len(circle) - _WIRES_SHOWN} more wires"


def _cut(wiring: _Wiring, cycle: set[str]) -> None:
    """Remove the wires of a cycle that lead back to a node before, in alphabetical order."""
    for reader in cycle:
        wiring[reader] = [a for a in wiring[reader] if a not in cycle or a < reader]


def report_unknown(
    context: CheckContext,
    findings: FindingSet,
    value: str,
    nodes: Collection[str],
    inputs: Collection[str],
    at: str,
) -> None:
    """Report a wire to a value that no node or input of a scope provides."""
    source, dot, _ = value.partition(".")
    scope = at.rpartition("/nodes/" if "/nodes/" in at else "/outputs/")[0]
    lost = context.lost.entries(f"{scope}/nodes") | context.lost.entries(f"{scope}/inputs")
    if nearest(source, lost):
        return
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
    fix = _meaning(value, nodes, inputs, at)
    findings.report(
        code="N02",
        at=at,
        problem=problem,
        help=help_ or "name an input or 'node.port'",
        fix=fix,
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
    nodes: Mapping[str, UseNode | RepeatedTemplate],
    outputs: Mapping[str, str],
    inputs: Collection[str],
    typed_values: Mapping[str, Given | None],
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
        typed_values: value to its type, where that is known.
        at: JSON Pointer of the scope.
    """
    values = {*outputs.values(), *(value for node in nodes.values() for value in node.in_.values())}
    read = {_meant(value, nodes, inputs) for value in values}
    if ("", "") in read:
        return
    by_source: dict[str, list[str]] = {}
    for name in typed_values if checker.doubts.unwired else ():
        by_source.setdefault(name.partition(".")[0], []).append(name)
    for key, node in nodes.items():
        if isinstance(node, RepeatedTemplate) and not (node.carry or node.collect):
            continue  # it has no outputs, which W10 reports
        if ("node", key) not in read and not _suits(
            checker.doubts, by_source.get(key, []), typed_values
        ):
            checker.findings.report(
                code="W03",
                at=at + pointer("nodes", key),
                problem=f"nothing reads node '{key}'",
                help="wire one of its outputs, or remove it",
                fix=removing(at + pointer("nodes", key)),
            )
    template = checker.memo.inside[-1] if checker.memo.inside else ""
    for key in [key for key in inputs if key not in checker.context.ignored.get(template, ())]:
        if ("input", key) not in read and not _suits(checker.doubts, [key], typed_values):
            checker.findings.report(
                code="W04",
                at=at + pointer("inputs", key),
                problem=f"nothing reads input '{key}'",
                help="wire it, or remove it",
            )


def _suits(doubts: Doubts, names: Iterable[str], typed_values: Mapping[str, Given | None]) -> bool:
    """Return whether one of some values may fit a port in this scope without a valid wire."""
    types = [value.type for name in names if (value := typed_values.get(name)) is not None]
    if not types:
        return bool(doubts.unwired)
    return any(
        not isinstance(fit(port_type, type_, {}, {}), Misfit)
        for port_type in doubts.unwired
        for type_ in types
    )
