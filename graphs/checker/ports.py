"""Ports: match the wires of a node against the ports of its block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...specs.findings import did_you_mean, nearest, pointer, renamed, respelled
from ...specs.form import Template
from ...specs.text.edits import replacing
from ..ir.block_type import Port, Registry
from ..ir.graph import Scope
from ..ir.value_type import Bound, Misfit, ValueType, fit
from .params import Report, Values

NO_ADAPTER = {
    ("bias", "mask"): "wire the mask from which the bias was made",
    ("f", "mask"): "a mask cannot be made from activations: wire a mask input",
}
"""(given kind, wanted kind) to the help where no block converts one into the other."""


@dataclass(slots=True)
class Checker:
    """State that all scopes of a spec share while they are typed."""

    registry: Registry
    values: Values
    axes: Mapping[str, str]
    templates: Mapping[str, Template]
    report: Report
    infer_template: Callable[..., Scope | None]
    """Types the inside of a template for the values wired to it: (checker, name, given, at)."""
    stand_ins: frozenset[str] = frozenset()
    """Templates that replace single copies of a repeat."""
    excused: set[str] = field(default_factory=set)
    """Templates that a misspelled name most likely meant."""
    wanted: list[ValueType] = field(default_factory=list)
    """Types of the ports in the current scope whose wires are missing or do not fit."""
    clashes: set[tuple[str, str]] = field(default_factory=set)
    """Blocks and reported errors of params that several uses read from the spec's params."""
    nodes_typed: int = 0
    """Number of nodes of templates that have been typed."""
    inside: list[str] = field(default_factory=list)
    """Templates that are being typed, the outermost first."""
    typed: dict[Any, Any] = field(default_factory=dict)
    """Template, types of its ports and unwired ports, to the resulting scope."""
    unknown_wires: set[str] = field(default_factory=set)
    """Pointers of wires to ports that do not exist."""
    absent_wires: dict[str, str] = field(default_factory=dict)
    """Pointers of wires that read an optional input which is not wired, to its name."""
    outputs_of: dict[str, Mapping[str, ValueType | None]] = field(default_factory=dict)
    """Pointers of uses of blocks, to the outputs; the type is None where it is unknown."""
    idle_params: dict[str, dict[str, object]] = field(default_factory=dict)
    """Pointers of params that have no effect in one use of their scope, to the finding."""
    active_params: set[str] = field(default_factory=set)
    """Pointers of params that have an effect in at least one use of their scope."""


def bind_ports(ports: Iterable[Port], given: Reads, same: Mapping[str, str]) -> Bound:
    """Return the bindings of the ports' names by those wires that fit; report nothing."""
    bound: Bound = {}
    for port_ in ports:
        read = given.get(port_.name)
        fitted = fit(port_.type, read.type, bound, {}) if isinstance(read, Given) else bound
        if not isinstance(fitted, Misfit):
            bound = {**fitted}
        for alias, target in same.items():
            if target in bound:
                bound.setdefault(alias, bound[target])
    return bound


@dataclass(frozen=True, slots=True)
class Given:
    """A value on a wire: its type, and its description in findings."""

    type: ValueType
    name: str


@dataclass(frozen=True, slots=True)
class NoOutput:
    """A wire to an output that its node does not have."""

    node: str
    port: str
    known: tuple[str, ...]
    """The outputs that the node has."""


Reads = Mapping[str, Given | NoOutput | None]
"""What each port reads: a value, None if its type is unknown, or an output that does not exist."""


def report_no_output(checker: Checker, missing: NoOutput, at: str) -> None:
    """Report a wire to an output that its node does not have."""
    known = [f"{missing.node}.{port_}" for port_ in missing.known]
    near = nearest(missing.port, missing.known)
    checker.report(
        code="N03",
        at=at,
        problem=f"node '{missing.node}' has no output '{missing.port}'",
        help=f"did you mean '{missing.node}.{near}'?" if near else did_you_mean("", known),
        fix=replacing(at, known[0], certain=True)
        if len(known) == 1
        else respelled(at, missing.port, missing.known, f"{missing.node}.{{}}"),
    )


def fit_ports(
    checker: Checker,
    ports: list[Port],
    given: Reads,
    same: Mapping[str, str],
    block: str,
    at: str,
    known: Bound,
    passed: frozenset[str] = frozenset(),
) -> Bound | None:
    """Match every wire of a node against its ports.

    Args:
        checker: the state that the scopes share.
        ports: the ports of the block or template.
        given: port to the value that it reads.
        same: axis names that default to another.
        block: the block's name, for messages.
        at: JSON Pointer of the wires.
        known: bindings of names that are already known.
        passed: wires that another block of the node takes, which are not unknown here.

    Returns:
        The bindings of the ports' names; None if a wire does not fit or is unknown.
    """
    by_name = {port_.name: port_ for port_ in ports}
    sound = all(port_.optional or port_.name in given for port_ in ports)
    for name, read in given.items():
        if name not in by_name and name not in passed:
            checker.unknown_wires.add(at + pointer(name))
            checker.report(
                code="N03",
                at=at + pointer(name),
                problem=f"{block} has no port '{name}'",
                help=did_you_mean(name, by_name),
                fix=renamed(at + pointer(name), name, by_name, given),
            )
            sound = False
        if isinstance(read, NoOutput):
            report_no_output(checker, read, at + pointer(name))
            sound = False
    bound: Bound = dict(known)
    origin: dict[str, str] = {}
    for port_ in ports:
        read = given.get(port_.name)
        if not isinstance(read, Given):
            sound = sound and port_.name not in given
            continue
        fitted = fit(port_.type, read.type, bound, origin)
        if isinstance(fitted, Misfit):
            report_misfit(checker, fitted, port_, read, block, at + pointer(port_.name))
            sound = False
            continue
        for name in fitted.keys() - bound.keys():
            origin[name] = port_.name
        bound = fitted
        for alias, target in same.items():
            if target in bound and alias not in bound:
                bound[alias] = bound[target]
                origin[alias] = origin.get(target, target)
    return bound if sound else None


def report_unwired(
    checker: Checker, ports: Iterable[Port], given: Reads, block: str, at: str
) -> None:
    """Report the required ports of a node that are not wired.

    A port is not reported if a wire to an unknown port most likely meant it.

    Args:
        checker: the state that the scopes share.
        ports: the ports of the block or template.
        given: port to the value that it reads.
        block: the block's name, for messages.
        at: JSON Pointer of the node.
    """
    ports = tuple(ports)
    wires = at + pointer("in")
    misspelled = [name for name in given if wires + pointer(name) in checker.unknown_wires]
    meant = {nearest(name, [port_.name for port_ in ports]) for name in misspelled}
    for port_ in ports:
        if port_.optional or port_.name in given or port_.name in meant or "" in meant:
            continue
        checker.wanted.append(port_.type)
        here = wires + pointer(port_.name)
        if here in checker.absent_wires:
            name = checker.absent_wires[here]
            checker.report(
                code="W01",
                at=here,
                problem=f"port '{port_.name}' of {block} reads input '{name}', which is not wired",
                evidence=(
                    f"wanted {port_.type}",
                    f"template '{checker.inside[-1]}' makes it optional",
                ),
                help=f"wire '{name}' wherever the template is used, and remove its '?'",
            )
            continue
        checker.report(
            code="W01",
            at=at,
            problem=f"port '{port_.name}' of {block} is not wired",
            evidence=(f"wanted {port_.type}",),
            help=f"add '{port_.name}' to 'in'",
        )


def report_misfit(
    checker: Checker, misfit: Misfit, port_: Port, read: Given, block: str, at: str
) -> None:
    """Report a wire that does not fit, with both types and how to fix it."""
    checker.wanted.append(port_.type)
    help_ = _adapter(checker, read.type.kind, port_.type.kind)
    if not help_ and port_.optional:
        help_ = f"remove '{port_.name}', or wire a value of the wanted type"
    elif not help_ and misfit.code == "T03" and read.type.kind == "f":
        block = _adapting(checker, "f", "f")
        help_ = "wire a value of the wanted type"
        help_ += f", or put {block} on this wire to change a width" if block else ""
    checker.report(
        code=misfit.code,
        at=at,
        problem=f"{misfit.problem} at port '{port_.name}'",
        evidence=(
            f"given  {read.type}  by {read.name}",
            f"wanted {misfit.detail}  by {block}, port {port_.name}",
        ),
        help=help_ or f"wire a value of kind {port_.type.kind}",
    )


def _adapter(checker: Checker, given: str, wanted: str) -> str:
    """Return how to convert a value to the kind that the port takes; empty if unknown."""
    if (given, wanted) in NO_ADAPTER:
        return NO_ADAPTER[given, wanted]
    block = _adapting(checker, given, wanted) if given != wanted else ""
    if not block:
        return ""
    other = f", or wire it to a port of kind {given}" if given == "mask" else ""
    return f"put {block} on this wire{other}"


def _adapting(checker: Checker, given: str, wanted: str) -> str:
    """Return the block that converts one kind into another, with an article; empty if none."""
    for block in checker.registry:
        if block.adapts == (given, wanted):
            return f"{'an' if block.name[0] in 'aeiou' else 'a'} '{block.key}'"
    return ""
