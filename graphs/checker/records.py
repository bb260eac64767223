"""Records: what one check of a spec reads, reports, remembers, and leaves open."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel

from ...specs.expressions import (
    ExpressionError,
    evaluate,
    is_expression,
    names_in,
    words_in,
)
from ...specs.findings import (
    MOST,
    Finding,
    did_you_mean,
    nearest,
    pointer,
    respelled,
    too_many,
    with_gap,
)
from ...specs.form import SpecForm, holds_spec, own_part
from ...specs.load import LoadedSpec
from ...specs.lost_parts import NOTHING, Lost
from ...specs.reader import LARGEST_VALUE, larger
from ...specs.references import words_read
from ...specs.wording import converted
from ..ir.block_type import Registry
from ..ir.graph import Graph, Scope, cycles, ordered
from ..ir.value_type import ValueType


class TooManyFindingsError(Exception):
    """Stops the check after too many findings."""


@dataclass(slots=True)
class FindingSet:
    """What is wrong with a spec, each mistake once."""

    source: str = ""
    """File of the spec."""
    lost: Lost = NOTHING
    """Parts of the spec that could not be read; what may be their consequence is not reported."""
    all: list[Finding] = field(default_factory=list)
    calls: int = 0
    """Number of calls of `report`, also of those that add nothing."""
    clashes: set[tuple[str, str]] = field(default_factory=set)
    """Blocks and reported errors of params that several uses read from the spec's params."""
    idle_params: dict[str, dict[str, object]] = field(default_factory=dict)
    """Pointers of params that have no effect in one use of their scope, to the finding."""
    active_params: set[str] = field(default_factory=set)
    """Pointers of params that have an effect in at least one use of their scope."""
    _reported: set[tuple[str, str, str]] = field(default_factory=set)

    def report(self, **fields: Any) -> None:
        """Add a finding with these fields; the source is filled in.

        Raises:
            TooManyFindingsError: there were `MOST` findings; the last one now states this.
        """
        self.calls += 1
        finding = Finding(source=self.source, **fields)
        if self.lost.hides(finding.code, finding.at):
            return
        # A template that is used with several types is checked for each: report a mistake once.
        mistake = (finding.code, finding.at, finding.problem)
        if mistake in self._reported:
            return
        self._reported.add(mistake)
        self.all.append(finding)
        if len(self.all) > MOST:
            self.all[-1] = too_many(self.source)
            raise TooManyFindingsError


class Argument(NamedTuple):
    """The value of a template's param, as a use of the template sets it."""

    value: Any
    at: str
    """JSON Pointer of the value that determines it."""
    overridden: bool = False
    """Whether it depends on an override."""


Arguments = Mapping[str, Argument]
"""Params of a template that one use sets, by name."""


class ParamValues:
    """The values of the params of a spec or of one use of a template, and those that are read."""

    def __init__(
        self, written: Mapping[str, Any], findings: FindingSet, overridden: Iterable[str] = ()
    ) -> None:
        """Start with every param unknown; `findings` receives what is wrong."""
        self.written, self.resolved = written, dict.fromkeys(written, MISSING)
        self.overridden = frozenset(overridden)
        """Params whose value an override replaces."""
        self.read = set[str]()
        """Params that something reads, or was likely meant to read."""
        self.unclear = False
        """Whether something reads a name that is not similar to any param."""
        self.doubtful = set[str]()
        """Params that occur in a requirement that was reported."""
        self.blamed = set[str]()
        """Pointers of params whose value has already been reported."""
        self.spec = self
        """The values of the spec's own params."""
        self.places = dict[str, str]()
        """Pointers of the values of a template's params."""
        self._findings = findings

    def inside(self, params: Mapping[str, Any], arguments: Arguments, at: str) -> ParamValues:
        """Return the values inside a template: those of the spec, and its own in place of them.

        Args:
            params: the template's params with their defaults; None has to be set.
            arguments: the params that a use sets.
            at: JSON Pointer of `params`.
        """
        outer, inner = self.spec, copy(self.spec)
        set_ = {name: arguments[name] for name in params if name in arguments}
        inner.written = {**outer.written, **params, **{name: a.value for name, a in set_.items()}}
        inner.resolved = {**outer.resolved, **dict.fromkeys(params, MISSING)}
        inner.resolved |= {name: argument.value for name, argument in set_.items()}
        inner.overridden = (outer.overridden - params.keys()) | {
            name for name, argument in set_.items() if argument.overridden
        }
        inner.read = set()
        inner.places = {name: at + pointer(name) for name in params}
        inner.places |= {name: argument.at for name, argument in set_.items()}
        defaults = {n: v for n, v in params.items() if n not in set_ and v is not None}
        for name in evaluation_order(defaults, self._findings, at):
            inner.resolved[name] = inner.resolve(defaults[name], at + pointer(name))
        specs = [name for name in params if holds_spec(inner.resolved[name])]
        inner.resolved |= dict.fromkeys(specs, MISSING)  # they are reported
        return inner

    def argument(self, value: Any, at: str) -> Argument:
        """Return a value of a use's params, evaluated, for the params of a template.

        Args:
            value: the value as written.
            at: its JSON Pointer.
        """
        name = value[1:].strip() if is_expression(value) else ""
        home = self.place_of(name) if name in self.written else at
        overridden = bool(self.overriding(words_read(value)))
        return Argument(self.resolve(value, at), home, overridden)

    def resolve(self, value: Any, at: str, shown: str = "") -> Any:
        """Return a JSON value with every expression inside it evaluated.

        A value that cannot be evaluated is reported and becomes `MISSING`.  A float that is a
        whole number becomes an int.

        Args:
            value: any JSON value.
            at: its JSON Pointer.
            shown: text that stands for the value in findings; by default, the value itself.
        """
        if isinstance(value, dict):
            resolved = {
                key: self.resolve(v, at + pointer(key)) for key, v in own_part(value).items()
            }
            resolved = self._bounded(resolved, at)
            return (
                resolved
                if resolved is MISSING
                else {key: resolved.get(key, v) for key, v in value.items()}
            )
        if isinstance(value, list | tuple):
            return self._bounded(
                [self.resolve(v, at + pointer(i)) for i, v in enumerate(value)], at
            )
        return self._evaluated(value, at, shown) if is_expression(value) else _plain(value)

    def _evaluated(self, value: str, at: str, shown: str) -> Any:
        """Return the value of an expression; arguments as of `resolve`."""
        try:
            names = names_in(value[1:])
            self.read.update(names)
            unknown = [name for name in names if name not in self.resolved]
            for name in unknown:
                self._unknown(name, shown or value, at)
            if unknown or any(self.resolved[name] is MISSING for name in names):
                return MISSING
            return _plain(evaluate(value[1:], self.resolved))
        except ExpressionError as error:
            self.read.update(words_in(value))
            quoted = [name for name in self.written if self._is_quoted(name, str(error))]
            where = self.blame(f"={quoted[0]}", at) if quoted else at
            if where is not None:
                self._findings.report(
                    code="E01",
                    at=where,
                    problem=f"cannot evaluate '{shown or value}': {error}",
                    help="write it without quotes"
                    if quoted
                    else "use numbers, params, + - * / // % ** and parentheses",
                    fix=converted(where, "float", self.resolved[quoted[0]]) if quoted else None,
                )
        return MISSING

    def _is_quoted(self, name: str, error: str) -> bool:
        """Return whether an error is about a param with a number in quotes."""
        return error == f"'{name}' is not a number" and bool(
            converted("", "float", self.resolved[name])
        )

    def _bounded(self, value: Any, at: str) -> Any:
        """Return an evaluated value, or report it if it has become too large."""
        if not larger(value, LARGEST_VALUE):
            return value
        self._findings.report(
            code="S11",
            at=at,
            problem=f"the value is larger than {LARGEST_VALUE:,} characters and values",
            help="write a number, a boolean, a string or a block choice",
        )
        return MISSING

    def blame(self, value: Any, at: str) -> str | None:
        """Return where to report a wrong value, or None if that was already reported.

        Args:
            value: the value as written; for `=name`, the pointer is that of the param.
            at: its JSON Pointer.
        """
        name = value[1:].strip() if is_expression(value) else ""
        if name not in self.written:
            return at
        home = self.place_of(name)
        if home in self.blamed:
            return None
        self.blamed.add(home)
        return home

    def place_of(self, name: str) -> str:
        """Return the pointer of the param that determines another's value, following `=name`."""
        for _ in self.written:
            text = self.written[name]
            if not is_expression(text) or text[1:].strip() not in self.written:
                break
            name = text[1:].strip()
        return self.places.get(name) or pointer("params", name)

    def overriding(self, names: Iterable[str]) -> set[str]:
        """Return the overridden params that the values of some params depend on."""
        waiting, visited = [*names], set[str]()
        while waiting:
            name = waiting.pop()
            if name in self.written and name not in visited:
                visited.add(name)
                waiting += words_read(self.written[name])
        return visited & self.overridden

    def with_(self, more: Mapping[str, Any]) -> ParamValues:
        """Return a copy with more values, which shares the records of reads and reports."""
        wider = copy(self)
        wider.resolved = {**self.resolved, **more}
        return wider

    def _unknown(self, name: str, text: str, at: str) -> None:
        near = nearest(name, self.resolved)
        self.read.add(near)
        self.unclear |= not near
        self._findings.report(
            code="E02",
            at=at,
            problem=f"'{text}' reads '{name}', which is not a param of the spec",
            help=did_you_mean(name, self.resolved) or f"add '{name}' to 'params'",
            fix=respelled(at, name, self.resolved, with_gap(text, name)),
        )


_READERS_SHOWN = 8
"""Maximum number of params of a cycle in a finding."""


def evaluation_order(written: Mapping[str, Any], findings: FindingSet, at: str) -> list[str]:
    """Return params in an order in which each follows those that it reads, and report cycles.

    Args:
        written: the params as written.
        findings: receives what is wrong.
        at: JSON Pointer of the object that they are in.
    """
    reads = {
        name: [other for other in words_read(value) if other in written]
        for name, value in written.items()
    }
    for cycle in cycles(reads):
        first = min(cycle)
        names = ", ".join(f"'{name}'" for name in sorted(cycle))
        findings.report(
            code="E04",
            at=at + pointer(first),
            problem=f"params read each other in a cycle: {names}",
            evidence=tuple(
                f"'{name}' is {json.dumps(written[name])[:80]}"
                for name in sorted(cycle)[:_READERS_SHOWN]
            ),
            help="give one of them a plain value",
        )
        reads = {
            name: [other for other in others if other not in cycle]
            for name, others in reads.items()
            if name not in cycle
        }
    return ordered(reads)


def _plain(value: Any) -> Any:
    """Return a float that is a whole number as an int, and any other value unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class _Missing:
    """Marks a value that could not be evaluated and was reported."""

    def __repr__(self) -> str:
        return "?"


MISSING: Any = _Missing()


def holds_missing(value: Any) -> bool:
    """Return whether a value, or anything inside it, could not be evaluated."""
    if isinstance(value, dict):
        return any(map(holds_missing, value.values()))
    if isinstance(value, list | tuple):
        return any(map(holds_missing, value))
    return value is MISSING


@dataclass(frozen=True, slots=True)
class CheckContext:
    """What a check reads."""

    spec: SpecForm
    registry: Registry
    values: ParamValues
    """The values of the params of the scope: those of the spec, or of a use of a template."""
    analyse: Callable[..., tuple[Graph | None, list[Finding]]]
    """Checks the model that a param holds."""
    infer_template: Callable[..., Scope | None]
    """Types the inside of a template for the values wired to it: (checker, name, reads, at, its
    params)."""
    ignored: Mapping[str, Collection[str]]
    """Inputs of templates that only other copies of a repeat need to read."""
    lost: Lost
    """The parts of the spec that could not be read."""
    source: str
    """File of the spec, next to which the specs that params name are searched."""
    outer: tuple[str, ...]
    """Files of the specs that contain this one as a model."""


MOST_VARIANTS = 400
"""Maximum number of params that one check tries in place of wrong ones."""


@dataclass(frozen=True, slots=True)
class StandIn:
    """The params of one use of a block, with guesses for those that are wrong."""

    params: BaseModel
    others: tuple[BaseModel, ...] = ()
    """The same params with other guesses."""
    doubtful: frozenset[str] = frozenset()
    """The params that are guesses."""
    complete: bool = True
    """Whether `others` has several guesses for each doubtful param."""
    unclear: bool = False
    """Whether a doubtful param has no other guess, such as a formula, so that even the ports are
    unknown."""

    @property
    def variants(self) -> tuple[BaseModel, ...]:
        """All params to compare, the first guess first."""
        return (self.params, *self.others)


MOST_EVALUATED = 1_000
"""Maximum number of copies for which the params of repeats are evaluated, in all repeats."""


@dataclass(slots=True)
class Memo:
    """What a check has computed, so that each part is typed only once."""

    typed: dict[Any, Any] = field(default_factory=dict)
    """Template, types of its ports and unwired ports, to the resulting scope."""
    nodes_typed: int = 0
    """Number of nodes of templates that have been typed."""
    copies_left: int = MOST_EVALUATED
    """Number of copies for which params of repeats may still be evaluated."""
    params_read: dict[str, set[str]] = field(default_factory=dict)
    """Template to those of its own params that something reads."""
    inside: list[str] = field(default_factory=list)
    """Templates that are being typed, the outermost first."""
    guesses: dict[tuple[str, str, frozenset[str]], StandIn | None] = field(default_factory=dict)
    """Block, valid params as JSON and wrong params, to the guesses for the wrong ones."""
    variants_left: int = MOST_VARIANTS
    """Number of params that may still be tried in place of wrong ones."""
    models: dict[str, LoadedSpec | None] = field(default_factory=dict)
    """Param to the spec that it holds; None if it cannot be read."""
    nested: dict[Any, Any] = field(default_factory=dict)
    """Graphs of held models and their insides, by what they depend on: each is made once."""
    nested_nodes: int = 0
    """Number of nodes of all held models, with those inside them."""


@dataclass(slots=True)
class Doubts:
    """What mistakes leave unknown, so that their consequences are not reported."""

    unwired: list[ValueType] = field(default_factory=list)
    """Types of the ports in the current scope whose wires are missing or do not fit."""
    excused: set[str] = field(default_factory=set)
    """Templates that a misspelled name most likely meant."""
    unknown_wires: set[str] = field(default_factory=set)
    """Pointers of wires to ports that do not exist."""
    absent_wires: dict[str, str] = field(default_factory=dict)
    """Pointers of wires that read an optional input which is not wired, to its name."""
    unsized: set[str] = field(default_factory=set)
    """Pointers of uses of blocks whose parameters have unknown shapes."""
    unnamed: set[str] = field(default_factory=set)
    """Pointers of uses of blocks of which some parameters are unknown."""
    uncounted: set[str] = field(default_factory=set)
    """Pointers of repeats whose number of copies is unknown."""
    unplaced: set[str] = field(default_factory=set)
    """Pointers of nodes whose blocks are unknown."""
    crossed: set[str] = field(default_factory=set)
    """Templates in which a carried value changes an axis: a wire inside reads the wrong value."""
    misfits: int = 0
    """Number of wires that do not fit."""
    doubts: int = 0
    """Number of uses of blocks with params that are wrong or have no effect."""


class Checker(NamedTuple):
    """The four records of one check, for functions that need nearly all of them."""

    context: CheckContext
    findings: FindingSet
    memo: Memo
    doubts: Doubts
