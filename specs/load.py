"""Load: from the name of a spec to its form, parents and overrides taken in.

A spec may extend another and change its params.  The parent is named, or lies in
the same folder as the child; no path leads out of there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .findings import Finding, InputError, SpecError, did_you_mean, pointer
from .form import Spec
from .reader import find, parse, read_json, read_text, shipped_names

ROOMS = ("models", "variants")
"""Folders of `specs/` that hold specs."""
LONGEST_CHAIN = 16
"""Specs that may extend one another in a row."""
OVERRIDES = "overrides"
"""What a finding names as its file when the value was set from outside."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_VARIANT_KEYS = ("format", "extends", "name", "doc", "params")


@dataclass(frozen=True, slots=True)
class LoadedSpec:
    """A spec with the values that were set from outside, ready to be checked."""

    form: Spec
    source: str
    """The file, as the user named it."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Values of params set from outside."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Pointer to the file it came from, where that is not `source`; `""` is the rest."""

    def place(self, finding: Finding) -> Finding:
        """Return a finding with the file in which its pointer can be followed."""
        for name in self.overrides:
            if _lies_in(finding.at, pointer("params", name)):
                return replace(finding, source=OVERRIDES)
        return _placed(finding, self.source, self.origins)


def _lies_in(at: str, place: str) -> bool:
    """Say whether a pointer is another, or leads further."""
    return not place or at == place or at.startswith(f"{place}/")


def _placed(finding: Finding, source: str, origins: Mapping[str, str]) -> Finding:
    near = max((at for at in origins if _lies_in(finding.at, at)), key=len, default=None)
    return replace(finding, source=source if near is None else origins[near])


def load(name: str | Path, overrides: Mapping[str, Any] | None = None) -> LoadedSpec:
    """Read a spec file or a shipped spec.

    Args:
        name: a path, or a shipped name such as `transformer-base`.
        overrides: param to value, winning over the file's own.

    Raises:
        InputError: no such file.
        SpecError: the text or its form is wrong.
    """
    path = find(str(name), *ROOMS)
    value, origins = _inherit(path, ())
    try:
        form = parse(Spec, value, str(path))
    except SpecError as error:
        raise SpecError(_placed(f, str(path), origins) for f in error.findings) from None
    return LoadedSpec(form, str(path), dict(overrides or {}), origins)


def loaded(value: Mapping[str, Any], source: str = "<memory>") -> LoadedSpec:
    """Take a spec that is already a JSON value."""
    return LoadedSpec(parse(Spec, dict(value), source), source)


def _inherit(path: Path, below: tuple[Path, ...]) -> tuple[Any, dict[str, str]]:
    """Return a file's value with its parents' taken in, and where each part came from."""
    value = read_json(read_text(path), str(path))
    if not isinstance(value, dict) or "extends" not in value:
        return value, {}
    findings = _variant_findings(value, str(path))
    if findings:
        raise SpecError(findings)
    name, params = value["extends"], value.get("params", {})
    parent = _parent(name, path)
    chain = (*below, path.resolve())

    def fail(code: str, problem: str, help_: str) -> SpecError:
        found = Finding(code=code, at="/extends", problem=problem, help=help_, source=str(path))
        return SpecError([found])

    if parent is None:
        known = [*shipped_names(*ROOMS), *(p.stem for p in path.parent.glob("*.json"))]
        raise fail("N08", f"unknown spec '{name}'", did_you_mean(name, set(known) - {path.stem}))
    if parent.resolve() in chain:
        raise fail("S07", f"'{name}' extends this spec in turn", "extend a spec that stands alone")
    if len(chain) >= LONGEST_CHAIN:
        problem = f"more than {LONGEST_CHAIN} specs extend one another"
        raise fail("S07", problem, "extend one nearer to the root")
    base, origins = _inherit(parent, chain)
    if not origins:
        # The root of the chain: what is wrong with it is wrong there, not in its children.
        parse(Spec, base, str(parent))
    unknown = [key for key in params if key not in base.get("params", {})]
    if unknown:
        raise SpecError(
            Finding(
                code="P04",
                at=pointer("params", key),
                problem=f"'{key}' is not a param of '{name}'",
                help=did_you_mean(key, base.get("params", {})),
                source=str(path),
            )
            for key in unknown
        )
    own = {key: value[key] for key in ("format", "name", "doc") if key in value}
    origins = {"": str(parent), **origins}
    origins |= {pointer(key): str(path) for key in own}
    origins |= {pointer("params", key): str(path) for key in params}
    return {**base, **own, "params": {**base.get("params", {}), **params}}, origins


def _variant_findings(value: Mapping[str, Any], source: str) -> list[Finding]:
    """Return what is wrong with the form of a spec that extends another."""
    found = [
        Finding(
            code="S03",
            at=pointer(key),
            problem=f"unknown key '{key}' beside 'extends'",
            help=did_you_mean(key, _VARIANT_KEYS),
            source=source,
        )
        for key in value
        if key not in _VARIANT_KEYS
    ]
    found += [
        Finding(
            code="S04",
            at="",
            problem=f"key '{key}' is missing",
            help=f"add '{key}'",
            source=source,
        )
        for key in ("format", "name")
        if key not in value
    ]
    forms = (("extends", str, "the name of a spec"), ("params", dict, "an object"))
    found += [
        Finding(
            code="S04",
            at=pointer(key),
            problem=f"'{key}' is not {wanted}",
            help=f"write {wanted}",
            source=source,
        )
        for key, form, wanted in forms
        if key in value and not isinstance(value[key], form)
    ]
    return found


def _parent(name: str, child: Path) -> Path | None:
    """Return the file of a parent: beside the child, or shipped; never elsewhere."""
    if not _NAME.fullmatch(name):
        return None
    beside = child.parent / f"{name.removesuffix('.json')}.json"
    own = beside.resolve() == child.resolve()
    if beside.is_file() and not beside.is_symlink() and not own:
        return beside
    return shipped_names(*ROOMS).get(name) or (beside if own else None)


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """Return the values of `--set path=value` texts; a value is JSON, or else a word.

    Raises:
        InputError: a text without `=`.
        SpecError: a JSON value with a key that stands twice, or nested too deep.

    >>> parse_overrides(["layers=4", "order=pre"])
    {'layers': 4, 'order': 'pre'}
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(
                f"'{text}' is not path=value", place="--set", help="write --set layers=4"
            )
        try:
            found[name.strip()] = read_json(value, f"--set {name.strip()}")
        except SpecError as error:
            if any(finding.code != "S01" for finding in error.findings):
                raise
            found[name.strip()] = value
    return found
