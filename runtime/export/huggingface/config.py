"""Configurations: the keys of `config.json` with which a table gives wanted values.

Simple values are inverted, and what they give is compared with what is wanted by reading the
configuration forward, so a value that cannot be inverted is an error and not a wrong model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ....graphs.match.solve import solved
from ....specs.expressions import ExpressionError, is_expression, names_in
from ...importing.config import FORMS, JOINT, Configuration, case_of
from ...importing.table import Table

_EQUAL = re.compile(r"([^=!<>]+)==([^=!<>]+)")


@dataclass(slots=True)
class Inverse:
    """The keys found so far."""

    table: Table
    values: dict[str, Any] = field(default_factory=dict)
    equations: list[tuple[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Values that no case gives."""

    def configuration(self) -> Configuration:
        """Return the keys found so far with the table's defaults."""
        return Configuration(nested(self.values), self.table.defaults, "config.json")

    def want(self, written: Any, value: Any) -> None:
        """Choose keys so that a value of the table is a given one, as far as that is possible.

        Args:
            written: the value as the table has it.
            value: the wanted value.
        """
        if is_expression(written):
            self.equations.append((written[1:], value))
        elif isinstance(written, dict) and written.keys() == {"by", "cases"}:
            self._choose(written["by"], written["cases"], value)
        elif isinstance(written, dict) and written.keys() == {"count"}:
            if isinstance(value, int):
                labels = {str(number): f"LABEL_{number}" for number in range(value)}
                self.values.setdefault(written["count"], labels)
        elif isinstance(written, dict) and isinstance(value, dict):
            for key in written.keys() & value.keys():
                self.want(written[key], value[key])

    def _choose(self, by: Any, cases: Mapping[str, Any], value: Any) -> None:
        """Choose the first case that is, or can give, a value."""
        if not isinstance(by, str) or is_expression(by):
            for each in cases.values():
                if is_expression(each):
                    self.equations.append((each[1:], value))
            return
        fits = {word: agreement(each, value) for word, each in cases.items()}
        known = {word: number for word, number in fits.items() if number is not None}
        if not known:
            self.problems.append(f"'{by}' has no value for {case_of(value)}")
        for word in sorted(known, key=lambda one: -known[one])[:1]:
            self.values.setdefault(by, _unworded(word))
            self.want(cases[word], value)

    def solve(self) -> None:
        """Solve the expressions, then meet the table's requirements where keys are still free."""
        for condition in self.table.require:
            equal = _EQUAL.fullmatch(condition.that or "")
            if equal is not None:
                self.equations.append((f"({equal[1]}) - ({equal[2]})", 0))
        self.values |= _scalars(solved(self.equations, self.values))
        for condition in self.table.require:
            if condition.key and condition.key not in self.values:
                self._meet(condition.key, condition.among)
        free = [e for e in self.equations if not set(names_in(e[0])) <= self.values.keys()]
        known = self.configuration()
        defaults = {}
        for name in {name for text, _ in free for name in names_in(text)} - self.values.keys():
            try:
                defaults[name] = known[name]
            except (KeyError, ExpressionError):
                continue
        for text, value in free:
            unknown = [n for n in names_in(text) if n not in self.values and n not in defaults]
            if len(unknown) == 1:
                self.values |= _scalars(solved([(text, value)], {**defaults, **self.values}))

    def _meet(self, key: str, among: tuple[Any, ...]) -> None:
        """Choose the value of a required key: its default if that is allowed, or the first one."""
        known = self.configuration()
        try:
            allowed = [known.value_of(each) for each in among]
            given = known.get(key)
        except (KeyError, ExpressionError):
            return
        if given is None or not any(_same(given, each) for each in allowed):
            given = next((each for each in allowed if each is not None), None)
        if given is not None:
            self.values[key] = given


def _scalars(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _same(one: Any, other: Any) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def agreement(written: Any, value: Any) -> int | None:
    """Return how many constants of a written value agree with a value; None if one does not.

    Expressions and computed objects may have any value.

    >>> agreement({"scaling": "linear", "base": "=theta"}, {"scaling": "linear", "base": 10.0})
    1
    >>> agreement("relu", "gelu") is None
    True
    """
    if is_expression(written):
        return 0
    if isinstance(written, dict):
        if frozenset(written) in FORMS:
            cases = written.get("cases", {})
            found = [agreement(each, value) for each in cases.values()]
            return max((one for one in found if one is not None), default=0 if not cases else None)
        if not isinstance(value, dict):
            return None
        inner = [agreement(each, value.get(key)) for key, each in written.items()]
        return None if None in inner else sum(one for one in inner if one is not None)
    return 1 if _same(written, value) else None


def _unworded(word: str) -> Any:
    """Return the value whose case has a name: the inverse of `case_of`.

    >>> _unworded("gelu"), _unworded("true"), _unworded("2")
    ('gelu', True, 2)
    """
    try:
        value = json.loads(word)
    except ValueError:
        return word
    return value if case_of(value) == word and not isinstance(value, str) else word


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return flat keys as nested objects.

    >>> nested({"size": 4, "rope_parameters__rope_theta": 100.0})
    {'size': 4, 'rope_parameters': {'rope_theta': 100.0}}
    """
    made: dict[str, Any] = {}
    for key, value in values.items():
        *outer, last = key.split(JOINT)
        record = made
        for name in outer:
            record = record.setdefault(name, {})
        record[last] = value
    return made


def configuration_for(
    table: Table, spec: str, params: Mapping[str, Any], tokens: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return the keys of a configuration with which a table gives a spec, params and tokens.

    Whether it does must be checked by reading it.  The second value lists what no key can give.

    Args:
        table: the table.
        spec: name of the spec.
        params: wanted params of the spec.
        tokens: wanted begin, end and padding ids; those that are None are left open.
    """
    inverse = Inverse(table)
    inverse.want(table.spec, spec)
    for name, written in table.params.items():
        if name in params:
            inverse.want(written, params[name])
    for name, written in table.tokens.items():
        if tokens.get(name) is not None:
            inverse.want(written, tokens[name])
    inverse.solve()
    known = inverse.configuration()
    for key, written in table.config.items():
        inverse.values[key] = known.value_of(written)
    head: dict[str, Any] = {"model_type": table.model_type[0]}
    if table.architectures:
        head["architectures"] = [table.architectures[0]]
    if "pad_token_id" not in inverse.values.keys() | table.defaults.keys():
        # The library's own default may lie outside a small vocabulary.
        inverse.values["pad_token_id"] = tokens.get("pad")
    return {**head, **nested(inverse.values)}, inverse.problems
