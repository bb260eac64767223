"""Configuration of another library's model, as names for the expressions of a table."""

from __future__ import annotations

import json
from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from ....plugin import Finding, SpecError, did_you_mean, pointer
from ....runtime.system.strangers import json_in
from ....specs.expressions import (
    ExpressionError,
    UnknownNameError,
    evaluate,
    is_expression,
    names_in,
)
from ....specs.reader import LARGEST
from .table import Condition, ImportTable

CONFIG = "config.json"
"""File with the configuration of a model."""

JOINT = "__"
"""Separator of the keys of nested objects: `rope_parameters__rope_theta`."""
MOST_LAYERS = 10_000
"""Maximum length of a list that a table writes."""
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

    def stated(self, keys: Collection[str]) -> dict[str, Any]:
        """Return what the configuration itself has of some keys, and its other numbers.

        Other texts are left out, since some name code that the library would load.

        Args:
            keys: the keys.
        """
        return {
            key: value
            for key, value in self._values.items()
            if key in keys or value is None or isinstance(value, int | float)
        }

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
            if work is not None and _is_form(written):
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


def _cases(config: Configuration, by: Any, cases: Mapping[str, Any]) -> Any:
    """Return the case selected by the value of a key, or by another value."""
    is_key = isinstance(by, str) and not is_expression(by)
    word = case_of(config.read(by) if is_key else config.value_of(by))
    if word not in cases:
        name = f"'{by}'" if is_key else next(iter(by.values()), by) if isinstance(by, dict) else by
        msg = f"{name} is {word}, but only {', '.join(cases)} are supported"
        raise ExpressionError(msg)
    return config.value_of(cases[word])


def _count(config: Configuration, count: str) -> int:
    """Return the number of entries of a list or object."""
    return len(config.listed(count))


def _item(config: Configuration, item: str, at: Any) -> Any:
    """Return an entry of a list, negative indices from the end, or of an object by its key."""
    values, index = config.listed(item), config.value_of(at)
    try:
        return values[index]
    except (LookupError, TypeError):
        msg = f"'{item}' has no entry {case_of(index)}"
        raise ExpressionError(msg) from None


def _period(config: Configuration, period: str) -> int:
    """Return the length of the shortest pattern that a list repeats; the last may be cut off."""
    values = config.listed(period)
    for length in range(1, len(values)):
        if isinstance(values, list) and values[length:] == values[:-length]:
            return length
    return len(values)


def _repeat(config: Configuration, repeat: Any, to: Any) -> list[Any]:
    """Return a list that repeats a pattern up to a length.

    Raises:
        ExpressionError: the length is not one of a list.
    """
    pattern, length = config.value_of(repeat), config.value_of(to)
    if not isinstance(length, int) or not 0 <= length <= MOST_LAYERS or not pattern:
        msg = f"{case_of(length)} is not a number of layers"
        raise ExpressionError(msg)
    return [pattern[number % len(pattern)] for number in range(length)]


FORMS: Mapping[frozenset[str], Callable[..., Any]] = {
    frozenset({"by", "cases"}): _cases,
    frozenset({"count"}): _count,
    frozenset({"item", "at"}): _item,
    frozenset({"period"}): _period,
    frozenset({"repeat", "to"}): _repeat,
}
"""Keys of an object in a table to the function that computes its value."""
KEYED = ("by", "count", "item", "period")
"""Keys of such objects whose value is the name of a key of the configuration."""


def _is_form(written: Mapping[str, Any]) -> bool:
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


def read_configuration(folder: Path, table: ImportTable) -> Configuration:
    """Read the configuration from a model's folder.

    Raises:
        InputError: the file cannot be read.
        SpecError: the file is not a JSON object, or the table does not support the model.
    """
    path = folder / CONFIG
    value = read_object(folder, CONFIG)
    findings: list[Finding] = []
    model_type, classes = value.get("model_type"), classes_of(value)
    if model_type not in table.model_type:
        type_name = case_of(model_type)
        problem = f"the table '{table.name}' does not support models of type {type_name}"
        help_ = f"it supports {', '.join(table.model_type)}; choose another table with --as"
        findings.append(_finding("I03", "/model_type", problem, help_, str(path)))
    elif table.architectures and classes and not classes & set(table.architectures):
        problem = f"weights of {', '.join(sorted(classes))} are not supported"
        help_ = f"the table '{table.name}' supports {', '.join(table.architectures)}"
        findings.append(_finding("I03", "/architectures", problem, help_, str(path)))
    if findings:
        raise SpecError(findings)
    return Configuration(value, table.defaults, str(path))


def classes_of(value: Mapping[str, Any]) -> set[str]:
    """Return the architecture classes listed in a configuration."""
    classes = value.get("architectures")
    return {c for c in classes if isinstance(c, str)} if isinstance(classes, list) else set()


def read_object(folder: Path, name: str, largest: int = LARGEST) -> dict[str, Any]:
    """Read a JSON object from a file of a folder.

    Args:
        folder: the folder.
        name: name of the file.
        largest: maximum size in bytes.

    Raises:
        InputError: the file cannot be read.
        SpecError: the file is not a JSON object.
    """
    value, source = json_in(folder, name, largest)
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
        finding = Finding(
            code=code,
            at=at,
            problem=problem,
            evidence=(evidence,),
            help=help_,
            source=self.config.source,
        )
        self.findings.append(finding)


def settle(table: ImportTable, source: str, config: Configuration) -> dict[str, Any]:
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
            location = pointer(*key.split(JOINT)) if key else ""
            evidence = f"given  {case_of(config[key])}" if key else f"wanted {condition.that}"
            attempt.report("I03", location, condition.otherwise, evidence, _OTHER)

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


def keys_read(table: ImportTable) -> frozenset[str]:
    """Return the keys that the spec, params, requirements and tokens of a table read.

    Keys that only a default of another key reads are not among them.
    """
    keys = set(_keys_in([table.spec, table.params, table.tokens]))
    for condition in table.require:
        keys.update([condition.key] if condition.key else names_in(condition.that or ""))
        keys.update(_keys_in(condition.among))
    return frozenset(keys)


def _keys_in(written: Any) -> Iterator[str]:
    """Yield the keys that a value of a table reads."""
    if is_expression(written):
        with suppress(ExpressionError):  # of a case that is not chosen
            yield from names_in(written[1:])
    elif isinstance(written, Mapping):
        computed = frozenset(written) in FORMS and _is_form(written)
        for name, inner in written.items():
            if computed and name in KEYED and not is_expression(inner) and isinstance(inner, str):
                yield inner
            else:
                yield from _keys_in(inner)
    elif isinstance(written, list | tuple):
        for inner in written:
            yield from _keys_in(inner)


def _holds(condition: Condition, config: Configuration) -> bool:
    if condition.key is None:
        return bool(evaluate(condition.that or "", config))
    value = config.read(condition.key)
    return any(_same(value, config.value_of(alternative)) for alternative in condition.among)


def _same(first: Any, other: Any) -> bool:
    """Return whether two JSON values are equal; true does not equal 1."""
    return isinstance(first, bool) == isinstance(other, bool) and bool(first == other)
