"""Configuration of another library's model, as names for the expressions of a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ...specs.expressions import ExpressionError, UnknownNameError, evaluate, is_expression
from ...specs.findings import Finding, SpecError, did_you_mean, pointer
from ...specs.reader import LARGEST, read_file
from .table import Condition, Table

JOINT = "__"
"""Separator of the keys of nested objects: `rope_parameters__rope_theta`."""
DEEPEST = 16
"""Maximum length of a chain of defaults that refer to one another."""

_OTHER = "import a model without it, or write a spec and a table that support it"


class Configuration(Mapping[str, Any]):
    """Mapping of configuration keys to values, with a table's defaults for missing or null keys."""

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

    def value_of(self, written: Any) -> Any:
        """Evaluate a value of a table, including nested objects and lists.

        A string that begins with `=` is an expression over the keys.  An object with `by`
        and `cases` evaluates to the case selected by the value of a key; an object with
        `count` to the number of entries of a key's value.

        Raises:
            ExpressionError: an expression cannot be evaluated, or a key's value is not
                among the cases.
        """
        if is_expression(written):
            return evaluate(written[1:], self)
        if _is_choice(written):
            return self.value_of(self._case(written["by"], written["cases"]))
        if isinstance(written, dict) and written.keys() == {"count"}:
            return self._count(written["count"])
        if isinstance(written, dict):
            return {key: self.value_of(inner) for key, inner in written.items()}
        if isinstance(written, list):
            return [self.value_of(inner) for inner in written]
        return written

    def _case(self, key: str, cases: Mapping[str, Any]) -> Any:
        if key not in self:
            raise UnknownNameError(key)
        word = case_of(self[key])
        if word not in cases:
            msg = f"'{key}' is {word}, but only {', '.join(cases)} are supported"
            raise ExpressionError(msg)
        return cases[word]

    def _count(self, key: str) -> int:
        if key not in self:
            raise UnknownNameError(key)
        value = self[key]
        if not isinstance(value, dict | list):
            msg = f"'{key}' is {case_of(value)}, which has no entries to count"
            raise ExpressionError(msg)
        return len(value)


def _is_choice(written: Any) -> bool:
    """Return whether a value of a table is an object with `by` and `cases`."""
    return (
        isinstance(written, dict)
        and written.keys() == {"by", "cases"}
        and isinstance(written["by"], str)
        and isinstance(written["cases"], dict)
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


def read_configuration(folder: Path, table: Table) -> Configuration:
    """Read the configuration from a model's folder.

    Raises:
        InputError: the file cannot be read.
        SpecError: the file is not a JSON object, or the table does not support the model.
    """
    path = folder / "config.json"
    value = read_object(path)
    found: list[Finding] = []
    model_type, classes = value.get("model_type"), classes_of(value)
    if model_type not in table.model_type:
        given = case_of(model_type)
        problem = f"the table '{table.name}' does not support models of type {given}"
        help_ = f"it supports {', '.join(table.model_type)}; choose another table with --as"
        found.append(_finding("I03", "/model_type", problem, help_, str(path)))
    elif table.architectures and classes and not classes & set(table.architectures):
        problem = f"weights of {', '.join(sorted(classes))} are not supported"
        help_ = f"the table '{table.name}' supports {', '.join(table.architectures)}"
        found.append(_finding("I03", "/architectures", problem, help_, str(path)))
    if found:
        raise SpecError(found)
    return Configuration(value, table.defaults, str(path))


def classes_of(value: Mapping[str, Any]) -> set[str]:
    """Return the architecture classes listed in a configuration."""
    classes = value.get("architectures")
    return {c for c in classes if isinstance(c, str)} if isinstance(classes, list) else set()


def read_object(path: Path, largest: int = LARGEST) -> dict[str, Any]:
    """Read a JSON object from a file.

    Args:
        path: the file.
        largest: maximum size in bytes.

    Raises:
        InputError: the file cannot be read.
        SpecError: the file is not a JSON object.
    """
    value, source = read_file(path, largest)
    if not isinstance(value, dict):
        raise SpecError([_finding("I03", "", "the file is not a JSON object", "", source)])
    return value


def _finding(code: str, at: str, problem: str, help_: str, source: str) -> Finding:
    return Finding(code=code, at=at, problem=problem, help=help_, source=source)


class Attempts:
    """Evaluates values one after another and collects their errors as findings."""

    def __init__(self, config: Configuration, source: str) -> None:
        """Start without findings; `source` is the table's file."""
        self.config, self.source = config, source
        self.findings: list[Finding] = []

    def __call__(self, at: str, work: Callable[[], Any]) -> Any:
        """Return the result of `work`, or add a finding and return None.

        Args:
            at: JSON Pointer to the value in the table.
            work: evaluates the value.
        """
        try:
            return work()
        except UnknownNameError as error:
            problem = f"the configuration has no '{error.name}'"
            help_ = did_you_mean(error.name, self.config) or "add it to the table's defaults"
            self.report("I02", "", problem, f"read   by {self.source}#{at}", help_)
        except ExpressionError as error:
            self.report("I03", "", str(error), f"read   by {self.source}#{at}", _OTHER)
        return None

    def report(self, code: str, at: str, problem: str, evidence: str, help_: str) -> None:
        """Add a finding about the configuration."""
        found = Finding(
            code=code,
            at=at,
            problem=problem,
            evidence=(evidence,),
            help=help_,
            source=self.config.source,
        )
        self.findings.append(found)


def settle(table: Table, source: str, config: Configuration) -> dict[str, Any]:
    """Evaluate `spec`, `params` and `tokens` of a table for one configuration.

    Args:
        table: the table.
        source: file of the table, for findings.
        config: configuration of the model.

    Raises:
        SpecError: the configuration lacks keys or has unsupported values; has all findings.
    """
    attempt = Attempts(config, source)
    for index, condition in enumerate(table.require):
        at = pointer("require", index)
        if attempt(at, partial(_holds, condition, config)) is False:
            key = condition.key
            place = pointer(*key.split(JOINT)) if key else ""
            given = f"given  {case_of(config[key])}" if key else f"wanted {condition.that}"
            attempt.report("I03", place, condition.otherwise, given, _OTHER)

    def settled(at: str, written: Any) -> Any:
        return attempt(at, partial(config.value_of, written))

    values = {
        "spec": settled("/spec", table.spec),
        "params": {k: settled(pointer("params", k), v) for k, v in table.params.items()},
        "tokens": {k: settled(pointer("tokens", k), v) for k, v in table.tokens.items()},
    }
    if attempt.findings:
        raise SpecError(dict.fromkeys(attempt.findings))
    return values


def _holds(condition: Condition, config: Configuration) -> bool:
    if condition.key is None:
        return bool(evaluate(condition.that or "", config))
    if condition.key not in config:
        raise UnknownNameError(condition.key)
    return any(_same(config[condition.key], value) for value in condition.among)


def _same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal; true does not equal 1."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
