"""Import a complete spec as a template of another spec.

`"blocks": {"tower": {"spec": "encoder", "params": {"layers": 2}}}` imports the nodes of
the spec `encoder` as the template `tower`.  Its params are renamed to `tower__layers` and so
on, its templates to `tower__layer`.  Its axes become free names, so that the template can be
used over any axis.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from .expressions import words_in
from .findings import Finding, Origins, SpecError, at_most, did_you_mean, pointer, renamed
from .form import BUDGETS
from .patches.selections import glob
from .references import Reference, references, rewritten
from .text_edits import Fix

Json = dict[str, Any]
Read = Callable[[str, str], tuple[Json, Origins] | Finding]
"""Maps a spec name and the file that names it to the spec's value, or to a finding."""

Reported = list[tuple[str, list[Finding], Any]]
"""Pointer of each entry that cannot be imported, the findings about it, and the entry."""

_KEYS = ("spec", "params", "doc")
_SHARED = ("inputs", "outputs", "nodes", "tie", "init")
"""Keys of a spec that a template has too."""


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
        problems = _form_findings(name, entry, source)
        base = None if problems else read(str(entry["spec"]), source)
        taken = {*full["params"]}, {*blocks, *full["blocks"]}
        if isinstance(base, Finding):
            problems = [_moved(base, name, source)]
        elif base is not None:
            problems = _misfits(name, entry, base[0], source)
            problems += _name_collisions(name, base[0], *taken, source)
        findings += problems
        if not problems and base is not None and not isinstance(base, Finding):
            _add(full, merged, name, entry, base)
        if problems and reported is not None:
            reported.append((pointer("blocks", name), problems, entry))
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
    findings = [
        Finding(
            code="S03",
            at=at + pointer(key),
            problem=f"unknown key '{key}' in an entry with 'spec'",
            help=did_you_mean(key, _KEYS),
            source=source,
            fix=renamed(at + pointer(key), key, _KEYS, entry),
        )
        for key in entry
        if key not in _KEYS
    ]
    forms = (("spec", str, "the name of a spec"), ("params", dict, "an object"))
    return findings + [
        Finding(
            code="S04",
            at=at + pointer(key),
            problem=f"'{key}' is not {expected}",
            help=f"write {expected}",
            source=source,
        )
        for key, form, expected in forms
        if key in entry and not isinstance(entry[key], form)
    ]


def _misfits(name: str, entry: Mapping[str, Any], base: Json, source: str) -> list[Finding]:
    """Return the reasons why a spec cannot be imported as this template."""
    at, params = pointer("blocks", name), base.get("params", {})
    return [
        Finding(
            code="P04",
            at=at + pointer("params", key),
            problem=f"'{key}' is not a param of '{entry['spec']}'",
            help=did_you_mean(key, params),
            source=source,
            fix=renamed(at + pointer("params", key), key, params, entry["params"]),
        )
        for key in entry.get("params", {})
        if key not in params
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
    value, origins = base
    params = {key: f"{name}__{key}" for key in value.get("params", {})}
    templates = {key: f"{name}__{key}" for key in value.get("blocks", {})}
    taken = {*full["params"], *params.values()}
    names = _Names(params, templates, _free_axes(value.get("axes", {}), taken), taken)
    inner = _renamed(value, names)
    file, at = merged.of(("blocks", name))
    template: Json = {key: inner[key] for key in _SHARED if key in inner}
    doc = entry.get("doc") or inner.get("doc", "")
    full["blocks"][name] = template | ({"doc": doc} if doc else {})
    merged.at(("blocks",)).inner[name] = origins.copied(())
    for key, new in templates.items():
        full["blocks"][new] = inner["blocks"][key]
        merged.at(("blocks",)).inner[new] = origins.copied(("blocks", key))
    overrides = entry.get("params", {})
    for key, new in params.items():
        full["params"][new] = overrides.get(key, inner["params"][key])
        origin = origins.of(("params", key))
        merged.put(
            ("params", new), (file, at + pointer("params", key)) if key in overrides else origin
        )
    require = list(full.get("require", ()))
    for index, text in enumerate(inner.get("require", ())):
        if words_in(value["require"][index]) & BUDGETS.keys():
            continue  # A budget of the imported spec would apply to the complete model here.
        merged.put(("require", str(len(require))), origins.of(("require", str(index))))
        require.append(text)
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


def _renamed(base: Json, names: _Names) -> Json:
    """Return an imported spec with new names in all its texts."""

    def new(reference: Reference) -> str | None:
        kind, name = reference.kind, reference.name
        if kind == "param":
            return None if reference.scope else names.params.get(name)
        if kind == "template":
            return _pattern(name, names)
        if kind == "axis":
            return names.axes[name]
        if kind == "size":
            return _free_word(name, names.taken)
        return None

    return cast("Json", rewritten(base, references(base), new))


def _free_word(word: str, taken: Collection[str]) -> str:
    """Return a name for a free word of a type that is different from all params."""
    while word in taken:
        word += "_"
    return word


def _pattern(pattern: str, names: _Names) -> str:
    """Return a pattern that matches the new names of the templates that it matches now."""
    match = next((key for key in names.templates if glob(pattern, key)), None)
    if match is None or pattern.startswith("*"):
        return pattern
    return names.templates[match].removesuffix(match) + pattern
