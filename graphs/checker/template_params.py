"""Params of templates: what a use of a template sets, and the values that its inside reads.

A template is a function: a use sets its params by expressions that read the scope of the use, and
inside the template they replace params of the spec with the same names.  In a repeat, expressions
may also read the number of the copy.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...specs.expressions import is_expression
from ...specs.findings import did_you_mean, nearest, pointer, renamed
from ...specs.form import RepeatedTemplate, Use, holds_spec
from ...specs.references import words_read
from ...specs.text_edits import removing
from .block_params import is_choice
from .records import (
    MISSING,
    MOST_EVALUATED,
    Argument,
    Arguments,
    CheckContext,
    Checker,
    ParamValues,
)


@dataclass(frozen=True, slots=True)
class Setting:
    """The params that one use of templates sets."""

    arguments: Arguments = field(default_factory=dict)
    complete: bool = True
    """Whether all of them could be read."""


def read_setting(checker: Checker, use: Use, name: str, at: str) -> Setting:
    """Return the params that a use of a template sets, and report those that it does not have.

    Args:
        checker: the state that the scopes share.
        use: a node, or a use in a slot; a block choice may name the template.
        name: the template.
        at: JSON Pointer of the use.
    """
    values = checker.context.values
    if use.fill:
        checker.findings.report(
            code="N04",
            at=at + pointer("fill"),
            problem=f"template '{name}' takes no fill",
            help='give it a param for the block, which its nodes use as \'"use": "=NAME"\'',
        )
    arguments = _arguments(values, use.params, at + "/params")
    complete = not checker.context.lost.covers(at + "/params")
    if is_expression(use.use):
        word = use.use[1:].strip()
        home, choice = values.place_of(word), values.resolved[word]
        is_choice(checker.findings, use.use, choice, at + "/use", home)
        chosen = choice.get("params", {})
        complete = complete and isinstance(chosen, dict)
        by = word in values.overridden
        arguments |= {
            key: Argument(value, home + pointer("params", key), by)
            for key, value in (chosen.items() if isinstance(chosen, dict) else ())
        }
    setting = Setting(arguments, complete)
    _report_unknown(checker, [name], setting)
    _report_missing(checker, name, setting, at)
    return setting


def _arguments(values: ParamValues, params: Mapping[str, Any], at: str) -> dict[str, Argument]:
    return {name: values.argument(value, at + pointer(name)) for name, value in params.items()}


class CopyValues:
    """The values that params of a repeat read for each of its copies.

    A list has an entry for each copy, and `index` is the number of the copy.
    """

    def __init__(self, checker: Checker, node: RepeatedTemplate, count: Any, at: str) -> None:
        """Report lists with another number of entries.

        Args:
            checker: the state that the scopes share.
            node: the repeat as written.
            count: number of copies, or `MISSING`.
            at: JSON Pointer of the repeat.
        """
        self.values, self.index = checker.context.values, node.index
        keys = [key for key in node.instead if is_expression(key)]
        self.words = {
            word for value in (*keys, *node.params.values()) for word in words_read(value)
        }
        values = {name: self.values.resolved.get(name) for name in self.words - {node.index}}
        self.lists = {name: value for name, value in values.items() if isinstance(value, list)}
        self.count = 1 if count is MISSING else count
        places = {name: self.values.place_of(name) for name in self.lists}
        literal = {n: value for n, value in node.params.items() if isinstance(value, list)}
        places |= {name: at + pointer("params", name) for name in literal}
        self.varies = bool(self.words & {node.index, *self.lists}) or bool(literal)
        evaluated = self.count * (self.varies + len(keys))
        self.limited = evaluated > checker.memo.copies_left
        if self.limited:
            checker.findings.report(
                code="P06",
                at=at,
                problem="params of repeats and keys of 'instead' are evaluated for more than"
                f" {MOST_EVALUATED:,} copies",
                help="use fewer copies, or nest fewer repeats whose copies differ",
            )
            self.count = 1
        checker.memo.copies_left -= min(evaluated, checker.memo.copies_left)
        self.wrong = set[str]()
        for name, value in {**literal, **self.lists}.items():
            if count is not MISSING and len(value) != count:
                self.wrong.add(name)
                checker.findings.report(
                    code="P07",
                    at=places[name],
                    problem=f"a list with {len(value)} entries is read by {count} copies",
                    evidence=(f"repeat {count}  at {at}/repeat",),
                    help="write an entry for each copy",
                )

    def of(self, copy: int) -> ParamValues:
        """Return the values for one copy."""
        if not (self.index or self.lists):
            return self.values
        entries = {
            name: MISSING if name in self.wrong else value[min(copy, len(value) - 1)]
            for name, value in self.lists.items()
        }
        if self.index is not None:
            entries[self.index] = copy
        inner = self.values.with_(entries)
        inner.read = set()
        return inner

    def noted(self, inner: ParamValues) -> None:
        """Note what the params for a copy have read."""
        if inner is not self.values:
            self.values.read |= inner.read - {self.index}

    def arguments(self, params: Mapping[str, Any], copy: int, at: str) -> Arguments:
        """Return the params that the repeat sets for one copy; `at` is their JSON Pointer."""
        inner, arguments = self.of(copy), dict[str, Argument]()
        for name, value in params.items():
            location = at + pointer(name)
            if not isinstance(value, list):
                arguments[name] = inner.argument(value, location)
            elif name in self.wrong:
                arguments[name] = Argument(MISSING, location)
            else:
                arguments[name] = inner.argument(value[copy], location + pointer(copy))
        self.noted(inner)
        return arguments

    def selected(self, checker: Checker, key: str, at: str) -> list[int] | None:
        """Return the copies for which a key of `instead` is true; None after a mistake."""
        copies = []
        if self.limited:
            return None
        for copy in range(self.count):
            inner = self.of(copy)
            value = inner.resolve(key, at)
            self.noted(inner)
            if value is MISSING:
                return None
            if not isinstance(value, bool) and value not in (0, 1):
                checker.findings.report(
                    code="P07",
                    at=at,
                    problem=f"'{key}' is {value} for copy {copy}, neither true nor false",
                    help="write a comparison, such as '=kind == 2', or a list of 0 and 1",
                )
                return None
            copies += [copy] if value else []
        return copies


def read_settings(
    checker: Checker, node: RepeatedTemplate, by_copy: CopyValues, at: str
) -> list[Setting]:
    """Return what a repeat sets for each of its copies; one entry if it is the same for all.

    Args:
        checker: the state that the scopes share.
        node: the repeat as written.
        by_copy: the values that its params read.
        at: JSON Pointer of the repeat.
    """
    findings, index = checker.findings, node.index
    templates = dict.fromkeys((node.block, *node.instead.values()))
    names = [name for name in templates if name in checker.context.spec.blocks]
    complete = not checker.context.lost.covers(at + "/params")
    if index is not None and index not in by_copy.words and complete:
        findings.report(
            code="W08",
            at=at + "/index",
            problem=f"nothing reads the index '{index}'",
            help=f"read it in 'params', as in '=2**{index}', or remove it",
            fix=removing(at + "/index"),
        )
    varies = by_copy.varies
    if node.share and (index is not None or varies):
        findings.report(
            code="P07",
            at=at + pointer("index" if index is not None else "share"),
            problem="the copies cannot differ: all of them share their weights",
            help=f"remove 'share', or {'remove' if index is not None else 'write numbers for'}"
            f" {repr('index') if index is not None else 'lists'}",
        )
        varies = False
    settings: list[Setting] = []
    for copy in range(by_copy.count if varies else 1):
        calls = findings.calls
        settings.append(Setting(by_copy.arguments(node.params, copy, at + "/params"), complete))
        if findings.calls != calls:
            break  # the others would have the same mistake
    if names:
        _report_unknown(checker, names, settings[0])
    for name in names:
        _report_missing(checker, name, settings[0], at)
    return settings


def _report_unknown(checker: Checker, names: Collection[str], setting: Setting) -> None:
    """Report the params of a use that none of its templates has."""
    blocks = checker.context.spec.blocks
    params = dict.fromkeys(param for name in names for param in blocks[name].params)
    listed = " or ".join(f"'{name}'" for name in names)
    for key, argument in setting.arguments.items():
        if key in params:
            _refuse_spec(checker, key, listed, argument.value, argument.at)
            continue
        checker.findings.report(
            code="N04",
            at=argument.at,
            problem=f"template {listed} has no param '{key}'",
            help=_of_import(checker.context, names, key)
            or did_you_mean(key, params)
            or "declare it in 'params' of the template, or remove it",
            fix=renamed(argument.at, key, params),
        )


def _of_import(context: CheckContext, names: Iterable[str], key: str) -> str:
    """Return how to set a param of an imported spec, which has one value for each import."""
    for name in names:
        start = f"{name}__"
        spec_params = context.values.spec.written
        params = [p.removeprefix(start) for p in spec_params if p.startswith(start)]
        if param := key if key in params else nearest(key, params):
            help_ = (
                f"set '{param}' in 'params' of the import '{name}', for all its uses; for another"
            )
            return f"{help_} value, import the spec once more under another name"
    return ""


def _refuse_spec(checker: Checker, param: str, template: str, value: Any, at: str) -> None:
    """Report a param of a template that holds a spec."""
    if holds_spec(value):
        checker.findings.report(
            code="P03",
            at=at,
            problem=f"param '{param}' of template {template} cannot hold a spec",
            help='hold it in a param of the spec, and use that as \'"use": "=NAME"\'',
        )


def _report_missing(checker: Checker, name: str, setting: Setting, at: str) -> None:
    """Report the params that a use of a template has to set and does not."""
    if not setting.complete:
        return
    for key, default in checker.context.spec.blocks[name].params.items():
        if default is None and key not in setting.arguments:
            checker.findings.report(
                code="W07",
                at=at,
                problem=f"param '{key}' of template '{name}' is missing",
                help=f"add '{key}' to 'params', or give it a default in the template",
            )


def inside(checker: Checker, name: str, setting: Setting) -> Checker:
    """Return the records of a check for the inside of a template, where its params have values."""
    template = checker.context.spec.blocks[name]
    spec_values = checker.context.values.spec
    if not template.params:
        return checker if checker.context.values is spec_values else _with(checker, spec_values)
    at = pointer("blocks", name, "params")
    return _with(checker, spec_values.inside(template.params, setting.arguments, at))


def _with(checker: Checker, values: ParamValues) -> Checker:
    return checker._replace(context=replace(checker.context, values=values))


def own_values(checker: Checker, name: str) -> str:
    """Return a text for the values of a template's own params: equal for equal values."""
    values = checker.context.values.resolved
    return repr({param: values[param] for param in checker.context.spec.blocks[name].params})


def note_reads(checker: Checker, inner: Checker, name: str) -> None:
    """Note which params the inside of a template has read."""
    params, values = checker.context.spec.blocks[name].params.keys(), inner.context.values
    if not params:
        return
    spec_values = checker.context.values.spec
    spec_values.read |= values.read - params
    spec_values.unclear |= values.unclear
    checker.memo.params_read.setdefault(name, set()).update(values.read & params)


def explain(checker: Checker, name: str, reported: int) -> None:
    """Add the values of a template's params to what was reported inside it.

    Args:
        checker: the records of the check of the inside.
        name: the template.
        reported: number of findings before.
    """
    params, values = checker.context.spec.blocks[name].params, checker.context.values.resolved
    if not params:
        return
    settings = ", ".join(f"{param} = {json.dumps(values[param], default=str)}" for param in params)
    line = f"where  {settings[:_LONGEST]}"
    findings = checker.findings.all
    findings[reported:] = [
        replace(finding, evidence=(*finding.evidence, line)) for finding in findings[reported:]
    ]


_LONGEST = 120
"""Maximum number of characters of the settings in a finding."""


def check_declared(checker: Checker) -> None:
    """Report wrong defaults, and params of templates that nothing reads."""
    for name, template in checker.context.spec.blocks.items():
        if not template.params:
            continue
        inner, at = inside(checker, name, Setting()), pointer("blocks", name, "params")
        note_reads(checker, inner, name)
        for param, default in template.params.items():
            _refuse_spec(checker, param, f"'{name}'", default, at + pointer(param))
