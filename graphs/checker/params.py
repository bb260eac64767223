"""Params: apply overrides, evaluate expressions, and check requirements."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import Any

from ...specs.bounds import LARGEST_VALUE, larger
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
from ...specs.form import BUDGETS, Spec, own_part
from ...specs.held import in_place_of
from ...specs.recovery.lost import NOTHING, Lost
from ..cost.budgets import Measure
from ..order import cycles, ordered


class TooManyFindingsError(Exception):
    """Stops the check after too many findings."""


class Report:
    """Adds findings of one file to a list, each once."""

    def __init__(self, findings: list[Finding], source: str, lost: Lost = NOTHING) -> None:
        """Add findings to `findings`, without those that may be consequences of `lost` parts."""
        self.calls = 0
        """Number of calls, also of those that add nothing."""
        self._findings, self._source, self._lost = findings, source, lost
        self._seen: set[tuple[str, str, str]] = set()

    def __call__(self, **fields: Any) -> None:
        """Add a finding with these fields; the source is filled in.

        Raises:
            TooManyFindingsError: there were `MOST` findings; the last one now states this.
        """
        self.calls += 1
        finding = Finding(source=self._source, **fields)
        if self._lost.hides(finding.code, finding.at):
            return
        # A template that is used with several types is checked for each: report a mistake once.
        mistake = (finding.code, finding.at, finding.problem)
        if mistake in self._seen:
            return
        self._seen.add(mistake)
        self._findings.append(finding)
        if len(self._findings) > MOST:
            self._findings[-1] = too_many(self._source)
            raise TooManyFindingsError


class Values:
    """The values of a spec's params, and which of them are read."""

    def __init__(
        self, written: Mapping[str, Any], report: Report, overridden: Iterable[str] = ()
    ) -> None:
        """Start with every param unknown; `report` is called with each finding."""
        self.written, self.known = written, dict.fromkeys(written, MISSING)
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
        self._report = report

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
            own = {key: self.resolve(v, at + pointer(key)) for key, v in own_part(value).items()}
            own = self._bounded(own, at)
            return own if own is MISSING else {key: own.get(key, v) for key, v in value.items()}
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
            unknown = [name for name in names if name not in self.known]
            for name in unknown:
                self._unknown(name, shown or value, at)
            if unknown or any(self.known[name] is MISSING for name in names):
                return MISSING
            return _plain(evaluate(value[1:], self.known))
        except ExpressionError as error:
            self.read.update(words_in(value))
            self._report(
                code="E01",
                at=at,
                problem=f"cannot evaluate '{shown or value}': {error}",
                help="use numbers, params, + - * / // % ** and parentheses",
            )
        return MISSING

    def _bounded(self, value: Any, at: str) -> Any:
        """Return an evaluated value, or report it if it has become too large."""
        if not larger(value, LARGEST_VALUE):
            return value
        self._report(
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
        return pointer("params", name)

    def overriding(self, names: Iterable[str]) -> set[str]:
        """Return the overridden params that the values of some params depend on."""
        waiting, seen = [*names], set[str]()
        while waiting:
            name = waiting.pop()
            if name in self.written and name not in seen:
                seen.add(name)
                waiting += _names_inside(self.written[name])
        return seen & self.overridden

    def with_(self, more: Mapping[str, Any]) -> Values:
        """Return a copy with more values, which shares the records of reads and reports."""
        wider = copy(self)
        wider.known = {**self.known, **more}
        return wider

    def _unknown(self, name: str, text: str, at: str) -> None:
        near = nearest(name, self.known)
        self.read.add(near)
        self.unclear |= not near
        self._report(
            code="E02",
            at=at,
            problem=f"'{text}' reads '{name}', which is not a param of the spec",
            help=did_you_mean(name, self.known) or f"add '{name}' to 'params'",
            fix=respelled(at, name, self.known, with_gap(text, name)),
        )


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


def evaluate_params(
    spec: Spec, overrides: Mapping[str, Any], report: Report
) -> tuple[dict[str, Any], Values]:
    """Return the value of every param.

    Args:
        spec: the spec as written.
        overrides: values that replace the spec's own.
        report: called with findings: unknown overrides, cycles, invalid expressions.

    Returns:
        The values by name, and the `Values` that resolve the rest of the spec.
    """
    for name in overrides:
        if name not in spec.params:
            report(
                code="P04",
                at=pointer("params", name),
                problem=f"override '{name}' is not a param of the spec",
                help=did_you_mean(name, spec.params),
            )
    written = {**spec.params}
    for name, value in overrides.items():
        if name in spec.params:
            written[name] = in_place_of(spec.params[name], value)
    values = Values(written, report, overrides)
    for name in _order(written, report):
        values.known[name] = values.resolve(written[name], pointer("params", name))
    return values.known, values


def _names_inside(value: Any) -> Iterator[str]:
    """Yield the names that the expressions inside a JSON value read."""
    if isinstance(value, dict):
        value = [*own_part(value).values()]
    if isinstance(value, list | tuple):
        for inner in value:
            yield from _names_inside(inner)
    elif is_expression(value):
        yield from words_in(value)


_READERS_SHOWN = 8
"""Maximum number of params of a cycle in a finding."""


def _order(written: Mapping[str, Any], report: Report) -> list[str]:
    """Return the params in an order in which each follows the params that it reads."""
    reads = {
        name: [other for other in _names_inside(value) if other in written]
        for name, value in written.items()
    }
    for cycle in cycles(reads):
        first = min(cycle)
        names = ", ".join(f"'{name}'" for name in sorted(cycle))
        report(
            code="E04",
            at=pointer("params", first),
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


def check_requirements(spec: Spec, values: Values, report: Report) -> None:
    """Report every requirement on a spec's params that does not hold."""
    for index, text in enumerate(spec.require):
        if not words_in(text) & BUDGETS.keys():
            _check_requirement(text, index, values, report)


def check_budget(
    text: str, index: int, values: Values, report: Report, sizes: Mapping[str, Measure]
) -> None:
    """Report a requirement on the size of a graph that does not hold.

    An example of a requirement is `parameters <= 70e6`.

    Args:
        text: the requirement.
        index: its place in `require`.
        values: the values of the spec's params.
        report: called with findings.
        sizes: the sizes that the requirement reads, by their names in `BUDGETS`.
    """
    counts = {name: size.count for name, size in sizes.items()}
    least = frozenset(name for name, size in sizes.items() if not size.exact)
    axes = dict.fromkeys(f"sizes  {size.sizes}" for size in sizes.values() if size.sizes)
    _check_requirement(text, index, values.with_(counts), report, least, tuple(axes))


_FACTORS = (1.25, 2, 10, 1_000)
"""Factors by which a graph may be larger than the part of it that is known."""


def _fails_above(text: str, values: Values, least: Iterable[str]) -> bool:
    """Return whether a requirement does not hold either for larger values of some names."""
    for factor in _FACTORS:
        sizes = {name: int(values.known[name] * factor) + 1 for name in least}
        try:
            if evaluate(text, {**values.known, **sizes}) is not False:
                return False
        except ExpressionError:
            return False
    return True


def _check_requirement(
    text: str,
    index: int,
    values: Values,
    report: Report,
    least: frozenset[str] = frozenset(),
    more: tuple[str, ...] = (),
) -> None:
    """Report a requirement that does not hold.

    Args:
        text: the requirement.
        index: its place in `require`.
        values: the values of the names that it reads.
        report: called with findings.
        least: names whose values may be larger.
        more: additional lines of evidence.
    """
    at = pointer("require", index)
    holds = values.resolve(f"={text}", at, text)
    if holds is MISSING or holds is True:
        return
    if holds is not False:
        report(
            code="E01",
            at=at,
            problem=f"'{text}' is {holds}, not a comparison",
            help="write a comparison, such as 'd_model % heads == 0'",
        )
        return
    if least and not _fails_above(text, values, least):
        return
    names = names_in(text)
    values.doubtful.update(names)
    given = ", ".join(
        f"{name} {'>=' if name in least else '='} {_shown(values.known[name])}" for name in names
    )
    help_ = "change one of these params" if names else "remove it: it reads no param"
    if names and BUDGETS.keys() >= set(names):
        where = "; ".join(dict.fromkeys(BUDGETS[name] for name in names))
        help_ = f"make the model smaller ({where}), or raise the budget"
    report(
        code="E05",
        at=at,
        problem=f"'{text}' does not hold",
        evidence=(f"given  {given}", *more) if names else (),
        help=help_,
    )


def _shown(value: Any) -> str:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:,}" if whole and value >= _LONG else str(value)


_LONG = 1_000_000
"""Smallest number that is shown with thousands separators."""
