"""Params: apply overrides, evaluate expressions, and check requirements."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ...specs.expressions import (
    ExpressionError,
    evaluate,
    names_in,
    words_in,
)
from ...specs.findings import (
    did_you_mean,
    pointer,
)
from ...specs.form import BUDGETS, Spec
from ...specs.held import in_place_of
from ..cost.budgets import Measure
from ..order import cycles, ordered
from .records import MISSING, Findings, Values, _names_inside


def evaluate_params(spec: Spec, overrides: Mapping[str, Any], findings: Findings) -> Values:
    """Return the values of a spec's params, which resolve the rest of the spec.

    Args:
        spec: the spec as written.
        overrides: values that replace the spec's own.
        findings: receives what is wrong.

    Returns:
        The values by name, and the `Values` that resolve the rest of the spec.
    """
    for name in overrides:
        if name not in spec.params:
            findings.report(
                code="P04",
                at=pointer("params", name),
                problem=f"override '{name}' is not a param of the spec",
                help=did_you_mean(name, spec.params),
            )
    written = {**spec.params}
    for name, value in overrides.items():
        if name in spec.params:
            written[name] = in_place_of(spec.params[name], value)
    values = Values(written, findings, overrides)
    for name in _order(written, findings):
        values.known[name] = values.resolve(written[name], pointer("params", name))
    return values


_READERS_SHOWN = 8
"""Maximum number of params of a cycle in a finding."""


def _order(written: Mapping[str, Any], findings: Findings) -> list[str]:
    """Return the params in an order in which each follows the params that it reads."""
    reads = {
        name: [other for other in _names_inside(value) if other in written]
        for name, value in written.items()
    }
    for cycle in cycles(reads):
        first = min(cycle)
        names = ", ".join(f"'{name}'" for name in sorted(cycle))
        findings.report(
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


def check_requirements(spec: Spec, values: Values, findings: Findings) -> None:
    """Report every requirement on a spec's params that does not hold."""
    for index, text in enumerate(spec.require):
        if not words_in(text) & BUDGETS.keys():
            _check_requirement(text, index, values, findings)


def check_budget(
    text: str, index: int, values: Values, findings: Findings, sizes: Mapping[str, Measure]
) -> None:
    """Report a requirement on the size of a graph that does not hold.

    An example of a requirement is `parameters <= 70e6`.

    Args:
        text: the requirement.
        index: its place in `require`.
        values: the values of the spec's params.
        findings: receives what is wrong.
        sizes: the sizes that the requirement reads, by their names in `BUDGETS`.
    """
    counts = {name: size.count for name, size in sizes.items()}
    least = frozenset(name for name, size in sizes.items() if not size.exact)
    axes = dict.fromkeys(f"sizes  {size.sizes}" for size in sizes.values() if size.sizes)
    _check_requirement(text, index, values.with_(counts), findings, least, tuple(axes))


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
    findings: Findings,
    least: frozenset[str] = frozenset(),
    more: tuple[str, ...] = (),
) -> None:
    """Report a requirement that does not hold.

    Args:
        text: the requirement.
        index: its place in `require`.
        values: the values of the names that it reads.
        findings: receives what is wrong.
        least: names whose values may be larger.
        more: additional lines of evidence.
    """
    at = pointer("require", index)
    holds = values.resolve(f"={text}", at, text)
    if holds is MISSING or holds is True:
        return
    if holds is not False:
        findings.report(
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
    findings.report(
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
