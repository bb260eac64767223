"""Load: from the name of a spec to its form, parents and overrides taken in.

A spec may extend another and change its params.  The parent is named, or lies in
the same folder as the child; no path leads out of there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .findings import Finding, InputError, SpecError, did_you_mean, pointer
from .form import Spec
from .reader import find, parse, read_json, read_text, shipped_names

ROOMS = ("models", "variants")
"""Folders of `specs/` that hold specs."""
LONGEST_CHAIN = 16
"""Specs that may extend one another in a row."""
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
        near = max((at for at in self.origins if finding.at.startswith(at)), key=len, default=None)
        source = self.source if near is None else self.origins[near]
        return Finding(
            code=finding.code,
            at=finding.at,
            problem=finding.problem,
            evidence=finding.evidence,
            help=finding.help,
            source=source,
        )


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
    return LoadedSpec(parse(Spec, value, str(path)), str(path), dict(overrides or {}), origins)


def loaded(value: Mapping[str, Any], source: str = "<memory>") -> LoadedSpec:
    """Take a spec that is already a JSON value."""
    return LoadedSpec(parse(Spec, dict(value), source), source)


def _inherit(path: Path, below: tuple[Path, ...]) -> tuple[Any, dict[str, str]]:
    """Return a file's value with its parents' taken in, and where each part came from."""
    value = read_json(read_text(path), str(path))
    if not isinstance(value, dict) or "extends" not in value:
        return value, {}

    def fail(at: str, code: str, problem: str, help_: str = "") -> SpecError:
        return SpecError([Finding(code=code, at=at, problem=problem, help=help_, source=str(path))])

    for key in value:
        if key not in _VARIANT_KEYS:
            help_ = did_you_mean(key, _VARIANT_KEYS)
            raise fail(pointer(key), "S03", f"unknown key '{key}' beside 'extends'", help_)
    parent_name, params = value["extends"], value.get("params", {})
    if not isinstance(parent_name, str) or not isinstance(params, dict):
        raise fail("", "S04", "'extends' takes a name and 'params' an object")
    parent = _parent(parent_name, path)
    if parent is None:
        known = [*shipped_names(*ROOMS), *(p.stem for p in path.parent.glob("*.json"))]
        raise fail(
            "/extends", "N08", f"unknown spec '{parent_name}'", did_you_mean(parent_name, known)
        )
    chain = (*below, path.resolve())
    if parent.resolve() in chain or len(chain) >= LONGEST_CHAIN:
        raise fail("/extends", "S07", f"'{parent_name}' extends this spec in turn")
    base, origins = _inherit(parent, chain)
    if not isinstance(base, dict):
        raise fail("/extends", "S04", f"'{parent_name}' is not an object")
    origins = {"": str(parent), **origins}
    for key in params:
        if key not in base.get("params", {}):
            help_ = did_you_mean(key, base.get("params", {}))
            raise fail(
                pointer("params", key), "P04", f"'{key}' is not a param of '{parent_name}'", help_
            )
        origins[pointer("params", key)] = str(path)
    own = {key: value[key] for key in ("format", "name", "doc") if key in value}
    origins |= {pointer(key): str(path) for key in own}
    return {**base, **own, "params": {**base.get("params", {}), **params}}, origins


def _parent(name: str, child: Path) -> Path | None:
    """Return the file of a parent: beside the child, or shipped; never elsewhere."""
    if "/" in name or "\\" in name or name.startswith("."):
        return None
    beside = child.parent / f"{name.removesuffix('.json')}.json"
    if beside.is_file() and not beside.is_symlink() and beside.resolve() != child.resolve():
        return beside
    return shipped_names(*ROOMS).get(name)


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """Return the values of `--set path=value` texts; a value is JSON, or else a word.

    Raises:
        InputError: a text without `=`.

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
            found[name.strip()] = json.loads(value)
        except (ValueError, RecursionError):
            found[name.strip()] = value
    return found
