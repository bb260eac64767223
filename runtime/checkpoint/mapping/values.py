"""Values of a table: JSON in which a string with `=` is an expression over names.

The names are the keys of a configuration, or the params of a spec.
"""

from __future__ import annotations

import json
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ....specs.expressions import ExpressionError, UnknownNameError, evaluate, is_expression

JOINT = "__"
"""Separator of the keys of nested objects: `rope_parameters__rope_theta`."""
MOST_LAYERS = 10_000
"""Maximum length of a list that a table writes."""
OTHER = "*"
"""Case of all values that no other case names."""
DEEPEST = 16
"""Maximum length of a chain of defaults that refer to one another."""


class ConfigValues(Mapping[str, Any]):
    """Mapping of names to values, with a table's defaults for missing or null ones."""

    def __init__(self, value: Mapping[str, Any], defaults: Mapping[str, Any], source: str) -> None:
        """Flatten the values to joined keys."""
        self.source = source
        self._values = dict(_flat(value))
        self._defaults = defaults
        self._resolving: list[str] = []

    def __getitem__(self, key: str) -> Any:
        """Return a value; defaults are evaluated on access.

        Raises:
            KeyError: neither the configuration nor the table has the key.
            ExpressionError: a default cannot be evaluated.
        """
        value = self._values.get(key)
        if value is not None or key not in self._defaults:
            return self._values[key]
        if len(self._resolving) >= DEEPEST:
            msg = f"defaults refer to one another in a circle: {' -> '.join(self._resolving[:4])}"
            raise ExpressionError(msg)
        self._resolving.append(key)
        try:
            return self.value_of(self._defaults[key])
        finally:
            self._resolving.pop()

    def __contains__(self, key: object) -> bool:
        """Return whether the configuration or the defaults have a key."""
        return key in self._values or key in self._defaults

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys."""
        return iter(self._values.keys() | self._defaults.keys())

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._values.keys() | self._defaults.keys())

    def value_of(self, written: Any, more: Mapping[str, int] | None = None) -> Any:
        """Evaluate a value of a table, including nested objects and lists.

        A string that begins with `=` is an expression over the keys.  Objects with the keys of
        `FORMS` are computed.

        Args:
            written: the value.
            more: further names for expressions, such as the number of a layer.

        Raises:
            ExpressionError: an expression cannot be evaluated, or a key's value is not
                among the cases or has another type.
        """
        if is_expression(written):
            return evaluate(written[1:], ChainMap(dict(more), self) if more else self)  # type: ignore[arg-type]
        if isinstance(written, dict):
            work = FORMS.get(frozenset(written))
            if work is not None and is_form(written):
                return work(self, **written)
            return {key: self.value_of(inner, more) for key, inner in written.items()}
        if isinstance(written, list | tuple):
            return [self.value_of(inner, more) for inner in written]
        return written

    def read(self, key: str) -> Any:
        """Return the value of a key.

        Raises:
            UnknownNameError: neither the configuration nor the table has the key.
        """
        if key not in self:
            raise UnknownNameError(key)
        return self[key]

    def listed(self, key: str) -> list[Any] | dict[str, Any]:
        """Return the list or object of a key.

        Raises:
            ExpressionError: the value is neither.
        """
        value = self.read(key)
        if not isinstance(value, dict | list):
            msg = f"'{key}' is {case_of(value)}, which has no entries"
            raise ExpressionError(msg)
        return value


def _cases(values: ConfigValues, by: Any, cases: Mapping[str, Any]) -> Any:
    """Return the case selected by the value of a key, or by another value; `*` is any other."""
    is_key = isinstance(by, str) and not is_expression(by)
    word = case_of(values.read(by) if is_key else values.value_of(by))
    case = word if word in cases else OTHER
    if case not in cases:
        name = f"'{by}'" if is_key else next(iter(by.values()), by) if isinstance(by, dict) else by
        msg = f"{name} is {word}, but only {', '.join(cases)} are supported"
        raise ExpressionError(msg)
    return values.value_of(cases[case])


def _count(values: ConfigValues, count: str) -> int:
    """Return the number of entries of a list or object."""
    return len(values.listed(count))


def _item(values: ConfigValues, item: str, at: Any) -> Any:
    """Return an entry of a list, negative indices from the end, or of an object by its key."""
    entries, index = values.listed(item), values.value_of(at)
    try:
        return entries[index]
    except (LookupError, TypeError):
        msg = f"'{item}' has no entry {case_of(index)}"
        raise ExpressionError(msg) from None


def _period(values: ConfigValues, period: str) -> int:
    """Return the length of the shortest pattern that a list repeats; the last may be cut off."""
    entries = values.listed(period)
    for length in range(1, len(entries)):
        if isinstance(entries, list) and entries[length:] == entries[:-length]:
            return length
    return len(entries)


def _repeat(values: ConfigValues, repeat: Any, to: Any) -> list[Any]:
    """Return a list that repeats a pattern up to a length.

    Raises:
        ExpressionError: the length is not one of a list.
    """
    pattern, length = values.value_of(repeat), values.value_of(to)
    if not isinstance(length, int) or not 0 <= length <= MOST_LAYERS or not pattern:
        msg = f"{case_of(length)} is not a number of layers"
        raise ExpressionError(msg)
    return [pattern[number % len(pattern)] for number in range(length)]


def _kinds(values: ConfigValues, kinds: str, kind: Any) -> list[bool]:
    """Return for each entry of a list whether it is a value."""
    value = values.value_of(kind)
    return [type(entry) is type(value) and entry == value for entry in values.listed(kinds)]


def _marks(values: ConfigValues, marks: str, to: Any) -> list[bool]:
    """Return for each number up to a length whether a list of numbers has it.

    Raises:
        ExpressionError: the length is not one of a list.
    """
    numbers, length = values.listed(marks), values.value_of(to)
    if not isinstance(length, int) or not 0 <= length <= MOST_LAYERS:
        msg = f"{case_of(length)} is not a number of layers"
        raise ExpressionError(msg)
    return [number in numbers for number in range(length)]


FORMS: Mapping[frozenset[str], Callable[..., Any]] = {
    frozenset({"by", "cases"}): _cases,
    frozenset({"count"}): _count,
    frozenset({"item", "at"}): _item,
    frozenset({"period"}): _period,
    frozenset({"repeat", "to"}): _repeat,
    frozenset({"kinds", "kind"}): _kinds,
    frozenset({"marks", "to"}): _marks,
}
"""Keys of an object in a table to the function that computes its value."""
KEYED = ("by", "count", "item", "period", "kinds", "marks")
"""Keys of such objects whose value is the name of a key of the configuration."""


def is_form(written: Mapping[str, Any]) -> bool:
    """Return whether the values of an object have the types of a computed one."""
    types = {"by": str | dict, "cases": dict, "repeat": list}
    return all(
        isinstance(value, types.get(key, str if key in KEYED else object))
        for key, value in written.items()
    )


def case_of(value: Any) -> str:
    """Return the name of the case for a value: a string unchanged, other values as JSON.

    >>> case_of("gelu"), case_of(True), case_of(None)
    ('gelu', 'true', 'null')
    """
    return value if isinstance(value, str) else json.dumps(value)


def _flat(value: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        yield before + key, inner
        if isinstance(inner, dict):
            yield from _flat(inner, f"{before}{key}{JOINT}")
