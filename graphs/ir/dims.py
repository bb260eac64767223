"""Axis arithmetic: the length of a dimension is a number or a linear combination of graph axes.

For example, a start token turns `T` into `T+1`, and stacked frames give `2*S`. An axis is a
combination of graph axes and 1 with integer factors, in a normal form, so that `1+T` and `T+1`
are the same text; a plain number is an `int`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from math import prod

Axis = int | str
"""A number, the normal form of a combination (`T`, `T+1`, `2*S`, `S+T-1`), or a free name."""

UNKNOWN = "?"
"""An axis that a mistake elsewhere leaves unknown: it fits any axis."""

LARGEST = 10**9
"""Largest factor or constant."""
MOST_TERMS = 8
"""Maximum number of axes in one combination."""
_TERM = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<factor>\d+(?:\*\d+)*)(?P<times>\*?))?(?P<name>[A-Za-z_][A-Za-z0-9_]*)?"
)
_LONGEST = 100
_NO_NAMES = ("...", UNKNOWN)

Terms = Mapping[str, int]
"""Name to factor; `""` is the constant."""


class AxisError(ValueError):
    """A text is not a linear combination of axes, or exceeds the limits."""


def time_axes(kinds: Mapping[str, str]) -> list[str]:
    """Return the axes along which positions follow each other, from the kinds of all axes."""
    return [axis for axis, kind in kinds.items() if kind == "time"]


def terms_of(axis: Axis) -> dict[str, int]:
    """Return an axis as name to factor, the constant under `""`.

    Raises:
        AxisError: the text is not a linear combination of axes, or exceeds the limits.

    >>> terms_of("2*S+1")
    {'S': 2, '': 1}
    """
    if isinstance(axis, int):
        return {"": axis} if axis else {}
    return dict(_terms(axis))


@functools.lru_cache(maxsize=1_024)
def _terms(axis: str) -> Terms:
    """Return the terms of an axis that is a text; they are not to be changed."""
    terms: dict[str, int] = {}
    at = 0
    while at < len(axis) and len(axis) <= _LONGEST:
        found = _TERM.match(axis, at)
        if found is None or found.end() == at or not (found["factor"] or found["name"]):
            break
        if at and not found["sign"]:
            break
        if found["factor"] and bool(found["times"]) != bool(found["name"]):
            break
        name = found["name"] or ""
        factor = prod(map(int, (found["factor"] or "1").split("*")))
        factor *= -1 if found["sign"] == "-" else 1
        terms[name] = terms.get(name, 0) + factor
        at = found.end()
    if at < len(axis) or not axis or len(terms) > MOST_TERMS:
        msg = f"'{axis[:_LONGEST]}' is not an axis, such as T, T+1 or 2*S"
        raise AxisError(msg)
    if any(abs(factor) > LARGEST for factor in terms.values()):
        msg = f"'{axis}' has a factor or constant larger than {LARGEST:,}"
        raise AxisError(msg)
    return {name: factor for name, factor in terms.items() if factor}


def axis_of(terms: Terms) -> Axis:
    """Return the normal form: axes in alphabetical order, then the constant.

    >>> axis_of({"": 1, "T": 1})
    'T+1'
    """
    kept = {name: factor for name, factor in terms.items() if factor}
    if not kept.keys() - {""}:
        return kept.get("", 0)
    text = ""
    for name in sorted(kept.keys() - {""}):
        factor = kept[name]
        text += ("-" if factor < 0 else "+" if text else "") + (
            name if abs(factor) == 1 else f"{abs(factor)}*{name}"
        )
    constant = kept.get("", 0)
    return text + (f"{constant:+d}" if constant else "")


def is_arithmetic(axis: Axis) -> bool:
    """Return whether an axis is a combination rather than a single name or number."""
    return isinstance(axis, str) and not axis.isidentifier() and axis not in _NO_NAMES


def names_of(axis: Axis) -> frozenset[str]:
    """Return the names in an axis; `...` is not a name.

    >>> sorted(names_of("2*S+T-1"))
    ['S', 'T']
    """
    if isinstance(axis, int) or axis in _NO_NAMES:
        return frozenset()
    return frozenset(terms_of(axis).keys() - {""}) if is_arithmetic(axis) else frozenset({axis})


def replaced(axis: Axis, values: Callable[[str], Axis | None]) -> Axis:
    """Return an axis with its names substituted; where `values` returns None, the name stays.

    >>> replaced("t+1", {"t": "2*S"}.get)
    '2*S+1'
    """
    if not is_arithmetic(axis):
        value = values(axis) if isinstance(axis, str) else None
        return axis if value is None else value
    total: dict[str, int] = {}
    for name, factor in terms_of(axis).items():
        value = values(name) if name else None
        if value == UNKNOWN:
            return UNKNOWN
        inner = {name: 1} if value is None else terms_of(value)
        for key, times in inner.items():
            total[key] = total.get(key, 0) + factor * times
    return axis_of(total)


def solve(wanted: Axis, given: Axis, free: str) -> Axis | None:
    """Return the value of a free name for which `wanted` equals `given`; None if there is none.

    >>> solve("t+1", "T+1", "t")
    'T'
    >>> solve("2*t", "T+1", "t")
    """
    terms, rest = terms_of(wanted), dict(terms_of(given))
    factor = terms.pop(free, 0)
    for name, times in terms.items():
        rest[name] = rest.get(name, 0) - times
    if not factor or any(times % factor for times in rest.values()):
        return None
    return axis_of({name: times // factor for name, times in rest.items()})


def evaluate(axis: Axis, sizes: Mapping[str, int]) -> int:
    """Return the length of an axis.

    Args:
        axis: a number, or a combination of graph axes.
        sizes: axis name to length.

    Raises:
        KeyError: a name has no size.

    >>> evaluate("2*S+1", {"S": 5})
    11
    """
    if isinstance(axis, int):
        return axis
    return sum(factor * (sizes[name] if name else 1) for name, factor in _terms(axis).items())
