"""Configuration of another library's model, as names for the expressions of a table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from ....plugin import Finding, SpecError, did_you_mean, pointer
from ....runtime.checkpoint.mapping.values import (
    FORMS,
    JOINT,
    KEYED,
    ConfigValues,
    case_of,
    is_form,
)
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
_OTHER = "import a model without it, or write a spec and a table that support it"


class Configuration(ConfigValues):
    """The keys of a configuration, with a table's defaults for missing or null ones."""

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

    `Infinity`, which Python writes although it is not JSON, becomes `{"__float__": "Infinity"}`, as
    transformers 5 writes it; so do `-Infinity` and `NaN`.

    Args:
        folder: the folder.
        name: name of the file.
        largest: maximum size in bytes.

    Raises:
        InputError: the file cannot be read.
        SpecError: the file is not a JSON object.
    """
    value, source = json_in(folder, name, largest, lambda word: {"__float__": word})
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
        computed = frozenset(written) in FORMS and is_form(written)
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
