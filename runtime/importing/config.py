"""Configuration: another library's settings as names that a table's expressions read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ...specs.expressions import ExpressionError, UnknownNameError, evaluate, is_expression
from ...specs.findings import Finding, SpecError, did_you_mean, pointer
from ...specs.reader import LARGEST, read_json, read_text
from .table import Condition, Table

JOINT = "__"
"""Between the keys of objects inside one another: `rope_parameters__rope_theta`."""
DEEPEST = 16
"""Defaults that may lead to one another."""

_OTHER = "import a model without it, or write a spec and a table that have it"


class Configuration(Mapping[str, Any]):
    """The keys of a configuration, defaults of a table for those that are missing or null."""

    def __init__(self, value: Mapping[str, Any], defaults: Mapping[str, Any], source: str) -> None:
        """Keep the values by their joined keys."""
        self.source = source
        self._values = dict(_flat(value))
        self._defaults = defaults
        self._asked: list[str] = []

    def __getitem__(self, key: str) -> Any:
        """Return a value; a default is worked out when it is asked for.

        Raises:
            KeyError: neither the configuration nor the table has the key.
            ExpressionError: a default has no value.
        """
        value = self._values.get(key)
        if value is not None or key not in self._defaults:
            return self._values[key]
        if len(self._asked) >= DEEPEST:
            msg = f"defaults lead in a circle: {' -> '.join(self._asked[:4])}"
            raise ExpressionError(msg)
        self._asked.append(key)
        try:
            return self.value_of(self._defaults[key])
        finally:
            self._asked.pop()

    def __contains__(self, key: object) -> bool:
        """Say whether a key has a value."""
        return key in self._values or key in self._defaults

    def __iter__(self) -> Iterator[str]:
        """Walk the keys."""
        return iter(self._values.keys() | self._defaults.keys())

    def __len__(self) -> int:
        """Count the keys."""
        return len(self._values.keys() | self._defaults.keys())

    def value_of(self, written: Any) -> Any:
        """Return what a value of a table stands for, objects and lists inside and all.

        A text that begins with `=` is an expression over the keys; an object with `by`
        and `cases` is the case that the value of a key chooses, one with `count` how many
        entries a key's value has.

        Raises:
            ExpressionError: an expression has no value, or a key's value is no case.
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
            msg = f"'{key}' is {word}, and supported are {', '.join(cases)}"
            raise ExpressionError(msg)
        return cases[word]

    def _count(self, key: str) -> int:
        if key not in self:
            raise UnknownNameError(key)
        value = self[key]
        if not isinstance(value, dict | list):
            msg = f"'{key}' is {case_of(value)}, and has no entries to count"
            raise ExpressionError(msg)
        return len(value)


def _is_choice(written: Any) -> bool:
    """Say whether a value of a table is chosen by a key's."""
    return (
        isinstance(written, dict)
        and written.keys() == {"by", "cases"}
        and isinstance(written["by"], str)
        and isinstance(written["cases"], dict)
    )


def case_of(value: Any) -> str:
    """Return how a value is written as the name of a case: a word as it is, else JSON.

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
    """Return the configuration of a model's folder.

    Raises:
        InputError: the file cannot be read.
        SpecError: it is no JSON object, or of a model that the table is not for.
    """
    path = folder / "config.json"
    value = read_object(path)
    found: list[Finding] = []
    model_type, classes = value.get("model_type"), classes_of(value)
    if model_type not in table.model_type:
        given = case_of(model_type)
        problem = f"the model is of type {given}, and the table '{table.name}' is not for it"
        help_ = f"it is for {', '.join(table.model_type)}; choose another with --as"
        found.append(_finding("I03", "/model_type", problem, help_, str(path)))
    elif table.architectures and classes and not classes & set(table.architectures):
        problem = f"weights of {', '.join(sorted(classes))} are not supported"
        help_ = f"the table '{table.name}' knows {', '.join(table.architectures)}"
        found.append(_finding("I03", "/architectures", problem, help_, str(path)))
    if found:
        raise SpecError(found)
    return Configuration(value, table.defaults, str(path))


def classes_of(value: Mapping[str, Any]) -> set[str]:
    """Return the classes whose weights a configuration says that it comes with."""
    classes = value.get("architectures")
    return {c for c in classes if isinstance(c, str)} if isinstance(classes, list) else set()


def read_object(path: Path, largest: int = LARGEST) -> dict[str, Any]:
    """Return the JSON object of a file.

    Args:
        path: the file.
        largest: bytes that it may have.

    Raises:
        InputError: the file cannot be read.
        SpecError: it is no JSON object.
    """
    value = read_json(read_text(path, largest), str(path))
    if not isinstance(value, dict):
        raise SpecError([_finding("I03", "", "the file is not an object", "", str(path))])
    return value


def _finding(code: str, at: str, problem: str, help_: str, source: str) -> Finding:
    return Finding(code=code, at=at, problem=problem, help=help_, source=source)


class Attempts:
    """Works out values one after another, and keeps what is wrong with them."""

    def __init__(self, config: Configuration, source: str) -> None:
        """Begin without findings; `source` is the table's file."""
        self.config, self.source = config, source
        self.findings: list[Finding] = []

    def __call__(self, at: str, work: Callable[[], Any]) -> Any:
        """Return what `work` gives, or None with a finding; `at` is its place in the table."""
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
        """Keep a finding in the configuration."""
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
    """Return `spec`, `params` and `tokens` of a table for one configuration.

    Args:
        table: says how they follow from the configuration.
        source: its file, for findings.
        config: the model's.

    Raises:
        SpecError: everything that the configuration lacks or that is not supported.
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
    """Say whether two JSON values are the same; true is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
