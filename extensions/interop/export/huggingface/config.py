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

from .....plugin import Graph
from .....runtime.checkpoint.mapping.values import FORMS, JOINT, OTHER, case_of
from .....specs.expressions import ExpressionError, is_expression, names_in
from ...importing.config import Configuration, keys_read
from ...importing.table import ImportTable
from .equations import solved

_EQUAL = re.compile(r"([^=!<>]+)==([^=!<>]+)")
_SPECIAL = {"begin": "bos_token_id", "end": "eos_token_id", "pad": "pad_token_id"}
"""Special id to the key that every class has, with a default of its own."""
_FORCED = ("forced_bos_token_id", "forced_eos_token_id")
"""Further ones of the classes of encoder-decoders."""
START = "decoder_start_token_id"
"""The id that begins an output of an encoder-decoder; its classes may refuse null."""


@dataclass(slots=True)
class Inverse:
    """The keys found so far."""

    table: ImportTable
    original: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the configuration that the model was imported with; preferred where they fit."""
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
                usual = self._usual(written["count"])
                counted = [entries for entries in usual if isinstance(entries, dict | list)]
                same = (entries for entries in counted if len(entries) == value)
                self.values.setdefault(written["count"], next(same, labels))
        elif isinstance(written, dict) and isinstance(value, dict):
            for key in written.keys() & value.keys():
                self.want(written[key], value[key])

    def _choose(self, by: Any, cases: Mapping[str, Any], value: Any) -> None:
        """Choose a case that is, or can give, a value: a usual one if it fits, or the first."""
        if not isinstance(by, str) or is_expression(by):
            for case in cases.values():
                if is_expression(case):
                    self.equations.append((case[1:], value))
            return
        fits = {word: agreement(case, value) for word, case in cases.items()}
        agreements = {word: number for word, number in fits.items() if number is not None}
        if not agreements:
            self.problems.append(f"'{by}' has no value for {case_of(value)}")
            return
        best = [word for word, number in agreements.items() if number == max(agreements.values())]
        usual = [case_of(value) for value in self._usual(by)]
        word = next((word for word in usual if word in best), best[0])
        if word != OTHER:  # an expression of the case gives the value
            self.values.setdefault(by, _unworded(word))
        self.want(cases[word], value)

    def _usual(self, key: str) -> list[Any]:
        """Return the value of a key in the original configuration, and the table's default."""
        usual = [self.original[key]] if key in self.original else []
        try:
            return [*usual, self.configuration().value_of(self.table.defaults[key])]
        except (KeyError, ExpressionError):
            return usual

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
        configuration = self.configuration()
        defaults = {}
        for name in {name for text, _ in free for name in names_in(text)} - self.values.keys():
            try:
                defaults[name] = configuration[name]
            except (KeyError, ExpressionError):
                continue
        for text, value in free:
            unknown = [n for n in names_in(text) if n not in self.values and n not in defaults]
            if len(unknown) == 1:
                self.values |= _scalars(solved([(text, value)], {**defaults, **self.values}))

    def _meet(self, key: str, among: tuple[Any, ...]) -> None:
        """Choose the value of a required key: a usual one if that is allowed, or the first."""
        config = self.configuration()
        try:
            allowed = [config.value_of(entry) for entry in among]
        except ExpressionError:
            return
        usual = [v for v in self._usual(key) if any(_same(v, entry) for entry in allowed)]
        if usual and self.original and key not in self.original:
            return
        for value in [*usual, *(entry for entry in allowed if entry is not None)][:1]:
            self.values[key] = value

    def complete(self, tokens: Mapping[str, Any], *, ids: bool, decodes: bool) -> None:
        """Add the keys that no value determines, and choose the types of numbers.

        An imported model has those of its original configuration.  Any other one has the keys that
        the table reads, also those that are null, and the ids of special tokens, because the
        defaults of the library's class would apply to missing keys.

        Args:
            tokens: begin, end and padding id, as far as they are known.
            ids: whether the model reads ids.
            decodes: whether the model is an encoder-decoder.
        """
        config = self.configuration()
        constant = {key: config.value_of(written) for key, written in self.table.config.items()}
        extra: dict[str, Any] = dict(self.original)
        if not extra:
            if ids:
                extra |= {key: None for key in _FORCED if decodes}
                extra |= {key: tokens.get(name) for name, key in _SPECIAL.items()}
            for key in sorted(keys_read(self.table) - self.values.keys()):
                usual = self._usual(key)
                # Of nested objects, most of which have no defaults in the library, only null.
                needed = JOINT not in key or usual[:1] == [None]
                if usual and usual[0] is not None and needed:
                    extra[key] = usual[0]
                elif usual and needed and key != START:
                    extra.setdefault(key, None)
        values = {**extra, **self.values}
        values = {key: self._typed(key, value) for key, value in values.items()}
        self.values = {**values, **constant, **_ids(self.original)}

    def _typed(self, key: str, value: Any) -> Any:
        """Return a number with the type that its key has in the library.

        It is that of the original or default value, or a float if the key must equal another one
        that is a float.
        """
        if not _is_number(value):
            return value
        for usual in self._usual(key):
            if _is_number(usual) and value == type(usual)(value):
                return type(usual)(value)
        for condition in self.table.require:
            equal = _EQUAL.fullmatch(condition.that or "")
            names = [name.strip() for name in equal.groups()] if equal else []
            others = [
                other for name in names for other in (self.values.get(name), *self._usual(name))
            ]
            if key in names and any(isinstance(other, float) for other in others):
                return float(value)
        return value


def _ids(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ids of special tokens."""
    return {key: value for key, value in values.items() if key.endswith("_token_id")}


def _scalars(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(first: Any, other: Any) -> bool:
    return isinstance(first, bool) == isinstance(other, bool) and bool(first == other)


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
            agreements = [agreement(case, value) for case in cases.values()]
            return max(
                (count for count in agreements if count is not None),
                default=0 if not cases else None,
            )
        if not isinstance(value, dict):
            return None
        inner = [agreement(part, value.get(key)) for key, part in written.items()]
        return None if None in inner else sum(count for count in inner if count is not None)
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
    root: dict[str, Any] = {}
    for key, value in values.items():
        *outer, last = key.split(JOINT)
        record = root
        for name in outer:
            if not isinstance(record.get(name), dict):  # null, or missing
                record[name] = {}
            record = record[name]
        if value is not None or last not in record:
            record[last] = dict(value) if isinstance(value, dict) else value
    return root


def configuration_for(
    table: ImportTable,
    spec: str,
    graph: Graph,
    params: Mapping[str, Any],
    tokens: Mapping[str, Any],
    original: Mapping[str, Any],
) -> tuple[dict[str, Any], list[str]]:
    """Return the keys of a configuration with which a table gives a spec, params and tokens.

    Whether it does must be checked by reading it.  The second value lists what no key can give.

    Args:
        table: the table.
        spec: name of the spec.
        graph: graph of the spec.
        params: wanted params of the spec.
        tokens: wanted begin, end and padding ids; those that are None are left open.
        original: keys of the configuration that the model was imported with, by a checkpoint that
            a stranger may have written: only those that an import stores are taken, as others name
            code that the library would load.
    """
    stored = Configuration(original, {}, "state.json").stated(keys_read(table))
    inverse = Inverse(table, stored)
    inverse.want(table.spec, spec)
    for name, written in table.params.items():
        if name in params:
            inverse.want(written, params[name])
    for name, written in table.tokens.items():
        if tokens.get(name) is not None:
            inverse.want(written, tokens[name])
    inverse.solve()
    inverse.complete(
        tokens,
        ids=any(value.kind == "ids" for value in graph.inputs.values()),
        decodes=graph.step_axis is not None and len(graph.inputs) > 1,
    )
    head: dict[str, Any] = {"model_type": table.model_type[0]}
    if table.architectures:
        head["architectures"] = [table.architectures[0]]
    return {**head, **nested(inverse.values)}, inverse.problems
