"""Import a complete spec as a template of another spec.

`"blocks": {"tower": {"spec": "encoder", "params": {"layers": 2}}}` imports the nodes of
the spec `encoder` as the template `tower`.  Its params are renamed to `tower__layers` and so
on, its templates to `tower__layer`.  Its axes become free names, so that the template can be
used over any axis.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..expressions import WORD, calls, is_expression, words_in
from ..findings import Finding, SpecError, at_most, did_you_mean, pointer, renamed
from ..form import BUDGETS
from ..origins import Origins
from ..patches.select import glob
from ..text.edits import Fix

Json = dict[str, Any]
Read = Callable[[str, str], tuple[Json, Origins] | Finding]
"""Maps a spec name and the file that names it to the spec's value, or to a finding."""

Reported = list[tuple[str, list[Finding], Any]]
"""Pointer of each entry that cannot be imported, the findings about it, and the entry."""

_KEYS = ("spec", "params", "doc")
_KEPT = ("inputs", "outputs", "nodes", "tie", "init")
"""Keys of a spec that a template has too."""
_KIND = re.compile(r"\s*[a-z]+")
_TEMPLATES = re.compile(r"(?P<before>^/blocks/|\[(?:use|block)=)(?P<pattern>[^\[\]]*)")
"""A pattern of names of templates in a selection."""


@dataclass(frozen=True, slots=True)
class _Names:
    """New names of the params, templates and axes of an imported spec."""

    params: Mapping[str, str]
    templates: Mapping[str, str]
    axes: Mapping[str, str]
    taken: Collection[str]
    """Params of the importing spec, with which free names must not collide."""


def is_import(entry: Any) -> bool:
    """Return whether an entry of `blocks` imports a spec."""
    return isinstance(entry, dict) and "spec" in entry


def take_in(
    value: Json, origins: Origins, source: str, read: Read, reported: Reported | None = None
) -> tuple[Json, Origins]:
    """Return a spec's value with the specs that its `blocks` import written out.

    Args:
        value: the value; it is not modified.
        origins: where its parts were written.
        source: its file.
        read: returns the value of a spec by name.
        reported: receives the invalid entries, which are left out.

    Raises:
        SpecError: an entry is invalid, and `reported` is None.
    """
    blocks = value.get("blocks")
    if not isinstance(blocks, dict) or not any(map(is_import, blocks.values())):
        return value, origins
    merged = origins.twin()
    params = value.get("params", {})
    if not isinstance(params, dict):
        params = {}
    full: Json = {**value, "blocks": {}, "params": {**params}}
    findings: list[Finding] = []
    for name, entry in blocks.items():
        if not is_import(entry):
            full["blocks"][name] = entry
            continue
        found = _form_findings(name, entry, source)
        base = None if found else read(str(entry["spec"]), source)
        taken = {*full["params"]}, {*blocks, *full["blocks"]}
        if isinstance(base, Finding):
            found = [_moved(base, name, source)]
        elif base is not None:
            found = _misfits(name, entry, base[0], source)
            found += _name_collisions(name, base[0], *taken, source)
        findings += found
        if not found and base is not None and not isinstance(base, Finding):
            _add(full, merged, name, entry, base)
        if found and reported is not None:
            reported.append((pointer("blocks", name), found, entry))
    if findings and reported is None:
        raise SpecError(at_most(findings, source))
    if params is not value.get("params", params):
        full["params"] = value["params"]  # of the wrong type, which the reader reports
    return full, merged


def _moved(finding: Finding, name: str, source: str) -> Finding:
    """Return a finding about an imported spec, moved to the key that names the spec."""
    at = pointer("blocks", name, "spec")
    return replace(finding, at=at, source=source, fix=_moved_fix(finding.fix, at))


def _moved_fix(fix: Fix | None, at: str) -> Fix | None:
    """Return a fix that replaces a value, for the value at another pointer."""
    return fix and replace(fix, edits=tuple(replace(edit, path=at) for edit in fix.edits))


def _form_findings(name: str, entry: Mapping[str, Any], source: str) -> list[Finding]:
    """Return the findings about the keys of one entry."""
    at = pointer("blocks", name)
    found = [
        Finding(
            code="S03",
            at=at + pointer(key),
            problem=f"unknown key '{key}' in an entry with 'spec'",
            help=did_you_mean(key, _KEYS),
            source=source,
        )
        for key in entry
        if key not in _KEYS
    ]
    forms = (("spec", str, "the name of a spec"), ("params", dict, "an object"))
    return found + [
        Finding(
            code="S04",
            at=at + pointer(key),
            problem=f"'{key}' is not {wanted}",
            help=f"write {wanted}",
            source=source,
        )
        for key, form, wanted in forms
        if key in entry and not isinstance(entry[key], form)
    ]


def _misfits(name: str, entry: Mapping[str, Any], base: Json, source: str) -> list[Finding]:
    """Return the reasons why a spec cannot be imported as this template."""
    at, known = pointer("blocks", name), base.get("params", {})
    return [
        Finding(
            code="P04",
            at=at + pointer("params", key),
            problem=f"'{key}' is not a param of '{entry['spec']}'",
            help=did_you_mean(key, known),
            source=source,
            fix=renamed(at + pointer("params", key), key, known, entry["params"]),
        )
        for key in entry.get("params", {})
        if key not in known
    ]


def _name_collisions(
    name: str, base: Json, params: Collection[str], templates: Collection[str], source: str
) -> list[Finding]:
    """Return findings for params and templates whose new names are already in use."""
    parts = (
        ("param", base.get("params", {}), params),
        ("template", base.get("blocks", {}), templates),
    )
    return [
        Finding(
            code="X04",
            at=pointer("blocks", name),
            problem=f"{what} '{key}' is imported as '{name}__{key}', a name that exists already",
            help=f"set it in 'params' of '{name}'" if what == "param" else "rename one of the two",
            source=source,
        )
        for what, inner, taken in parts
        for key in inner
        if f"{name}__{key}" in taken
    ]


def _add(
    full: Json,
    merged: Origins,
    name: str,
    entry: Mapping[str, Any],
    base: tuple[Json, Origins],
) -> None:
    """Write one imported spec into the importing value."""
    inner, places = base
    params, templates = inner.get("params", {}), inner.get("blocks", {})
    own_names = {key: f"{name}__{key}" for key in params}
    taken = {*full["params"], *own_names.values()}
    names = _Names(
        own_names,
        {key: f"{name}__{key}" for key in templates},
        _free_axes(inner.get("axes", {}), taken),
        taken,
    )
    place = merged.of(("blocks", name))
    template: Json = {key: inner[key] for key in _KEPT if key in inner}
    doc = entry.get("doc") or inner.get("doc", "")
    full["blocks"][name] = _template(template | ({"doc": doc} if doc else {}), names)
    merged.at(("blocks",)).inner[name] = places.copied(())
    for key, template in templates.items():
        full["blocks"][names.templates[key]] = _template(template, names)
        merged.at(("blocks",)).inner[names.templates[key]] = places.copied(("blocks", key))
    given = entry.get("params", {})
    for key, written in params.items():
        new = names.params[key]
        full["params"][new] = given[key] if key in given else _param(written, names)
        own = (place[0], place[1] + pointer("params", key))
        merged.put(("params", new), own if key in given else places.of(("params", key)))
    require = list(full.get("require", ()))
    for index, text in enumerate(inner.get("require", ())):
        if words_in(text) & BUDGETS.keys():
            continue  # A budget of the imported spec would apply to the complete model here.
        merged.put(("require", str(len(require))), places.of(("require", str(index))))
        require.append(_replaced(text, names.params))
    if require:
        full["require"] = require


def _free_axes(axes: Iterable[str], taken: set[str]) -> dict[str, str]:
    """Return a lower-case name for each axis, different from all params and from each other."""
    free: dict[str, str] = {}
    for axis in axes:
        name = f"axis_{axis.lower()}"
        while name in taken or name in free.values():
            name += "_"
        free[axis] = name
    return free


def _free_words(words: Collection[str], taken: Collection[str]) -> dict[str, str]:
    """Return a name for each free word of a type, different from the params in `taken`."""
    found: dict[str, str] = {}
    for word in sorted(words):
        name = word
        while name in taken:
            name += "_"
        found[word] = name
    return found


def _replaced(text: Any, names: Mapping[str, str]) -> Any:
    """Return a text with its words replaced, but no functions; other values stay as they are."""
    if not isinstance(text, str):
        return text

    def new(found: re.Match[str]) -> str:
        return found[0] if calls(found) else names.get(found[0], found[0])

    return WORD.sub(new, text)


def _expressions(value: Any, names: _Names) -> Any:
    """Return a value with the names in its expressions replaced."""
    if isinstance(value, dict):
        return {key: _expressions(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [_expressions(inner, names) for inner in value]
    return _replaced(value, names.params) if is_expression(value) else value


def _param(value: Any, names: _Names) -> Any:
    """Return the value of a param with its names replaced, including a chosen template."""
    value = _expressions(value, names)
    if isinstance(value, dict) and value.get("use") in names.templates:
        return {**value, "use": names.templates[value["use"]]}
    return value


def _type(text: str, names: _Names) -> str:
    """Return a type with its names replaced, except the kind before its axes."""
    kind = _KIND.match(text)
    head = kind[0] if kind else ""
    rest = text[len(head) :]
    free = words_in(rest) - names.params.keys() - names.axes.keys()
    words = {**_free_words(free, names.taken), **names.params, **names.axes}
    return head + str(_replaced(rest, words))


def _template(template: Json, names: _Names) -> Json:
    """Return a template with its names replaced."""
    inputs = {key: _type(text, names) for key, text in template.get("inputs", {}).items()}
    nodes = {key: _node(node, names) for key, node in template.get("nodes", {}).items()}
    init = {key: _rules(template[key], names) for key in ("init",) if key in template}
    return {**template, "inputs": inputs, "nodes": nodes, **init}


def _rules(rules: list[Json], names: _Names) -> list[Json]:
    """Return rules for initial weights with their names replaced."""

    def new(found: re.Match[str]) -> str:
        return found["before"] + _pattern(found["pattern"], names)

    return [
        {**_expressions(rule, names), "select": _TEMPLATES.sub(new, rule["select"])}
        for rule in rules
    ]


def _pattern(pattern: str, names: _Names) -> str:
    """Return a pattern that matches the new names of the templates that it matches now."""
    known = next((key for key in names.templates if glob(pattern, key)), None)
    if known is None or pattern.startswith("*"):
        return pattern
    return names.templates[known].removesuffix(known) + pattern


def _node(node: Json, names: _Names) -> Json:
    """Return a node or the block in a slot with its names replaced."""
    new = {key: inner if key == "in" else _expressions(inner, names) for key, inner in node.items()}
    for key in ("use", "block"):
        if new.get(key) in names.templates:
            new[key] = names.templates[new[key]]
    if "instead" in node:
        new["instead"] = {i: names.templates.get(t, t) for i, t in node["instead"].items()}
    if "fill" in node:
        new["fill"] = {slot: _node(inner, names) for slot, inner in node["fill"].items()}
    return new
