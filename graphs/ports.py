"""Ports: match the wires of one node against what its block wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..specs.findings import did_you_mean, pointer
from ..specs.form import Template
from .params import Report, Values
from .shapes import Bound, Misfit, ValueType, fit
from .signature import Port, Registry

ADAPTERS = {
    ("keep", "bias"): "no block turns keep into bias by itself: wire the keep mask",
    ("bias", "keep"): "wire the keep mask from which the bias was made",
    ("ids", "f"): "put an 'embedding@1' on this wire",
    ("f", "keep"): "a mask is not made from activations: wire a keep input",
    ("len", "keep"): "give the mask itself as an input of kind keep",
}
"""(given kind, wanted kind) to the way out."""


@dataclass(slots=True)
class Checker:
    """What every scope of one spec shares while it is typed."""

    registry: Registry
    values: Values
    axes: Mapping[str, str]
    templates: Mapping[str, Template]
    report: Report
    used_templates: set[str] = field(default_factory=set)
    inside: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Given:
    """A value on a wire: its type and the words that name it."""

    type: ValueType
    name: str


Reads = Mapping[str, Given | str | None]
"""What each port reads: a value, None where its type is unknown, or a missing name."""


def report_unknown_output(
    checker: Checker, node: str, port_: str, known: list[str], at: str
) -> None:
    """Report that something reads an output which a node does not have."""
    checker.report(
        code="N03",
        at=at,
        problem=f"node '{node}' has no output '{port_}'",
        help=did_you_mean(port_, known),
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
        checker: what the scopes share.
        ports: the ports of the block or template.
        given: port to what it reads.
        same: axis names that stand for another.
        block: the block's name, for messages.
        at: JSON Pointer of the wires.
        known: names already settled.
        passed: wires that another block of the node takes, so not unknown here.

    Returns:
        What the ports' names stand for; None when something does not fit or is unknown.
    """
    by_name = {port_.name: port_ for port_ in ports}
    sound = True
    for name, read in given.items():
        if name not in by_name and name not in passed:
            checker.report(
                code="N03",
                at=at + pointer(name),
                problem=f"{block} has no port '{name}'",
                help=did_you_mean(name, by_name),
            )
            sound = False
        if isinstance(read, str):
            node, _, out = read.partition(".")
            report_unknown_output(checker, node, out, [], at + pointer(name))
            sound = False
    bound: Bound = dict(known)
    origin: dict[str, str] = {}
    for port_ in ports:
        if port_.name not in given:
            if not port_.optional:
                checker.report(
                    code="W01",
                    at=at.removesuffix("/in"),
                    problem=f"port '{port_.name}' of {block} is not wired",
                    evidence=(f"wanted {port_.type}",),
                    help=f"add '{port_.name}' to 'in'",
                )
                sound = False
            continue
        read = given[port_.name]
        if not isinstance(read, Given):
            sound = False
            continue
        learnt = fit(port_.type, read.type, bound, origin)
        if isinstance(learnt, Misfit):
            report_misfit(checker, learnt, port_, read, block, at + pointer(port_.name))
            sound = False
            continue
        for name in learnt.keys() - bound.keys():
            origin[name] = port_.name
        bound = learnt
        for alias, target in same.items():
            if target in bound and alias not in bound:
                bound[alias] = bound[target]
                origin[alias] = origin.get(target, target)
    return bound if sound else None


def report_misfit(
    checker: Checker, misfit: Misfit, port_: Port, read: Given, block: str, at: str
) -> None:
    """Report a wire that does not fit: both sides, and the way out."""
    help_ = ADAPTERS.get((read.type.kind, port_.type.kind), "")
    if not help_ and port_.optional:
        help_ = f"drop '{port_.name}', or wire a value of the wanted type"
    elif not help_ and misfit.code == "T03" and read.type.kind == "f":
        help_ = (
            "wire a value of the wanted type, or put a 'linear@1' on this wire to change a width"
        )
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
