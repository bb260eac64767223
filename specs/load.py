"""Load: from the name of a spec to its form, parents and overrides taken in.

A spec may extend another, which is named, or lies in the same folder as the child; no
path leads out of there.  What a child may change stands in `inherit.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .findings import Finding, InputError, SpecError, pointer
from .form import Spec
from .inherit import FOLDERS, LONGEST_CHAIN, extended, inherit, inherited, parse_placed, place
from .origins import Origins, Place, parts_of
from .reader import find, parse, read_json

__all__ = ["FOLDERS", "LONGEST_CHAIN", "LoadedSpec", "load", "loaded", "parse_overrides"]

OVERRIDES = "overrides"
"""What a finding names as its file when the value was set from outside."""


@dataclass(frozen=True, slots=True)
class LoadedSpec:
    """A spec with the values that were set from outside, ready to be checked."""

    form: Spec
    source: str
    """The file, as the user named it."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Values of params set from outside."""
    origins: Origins | None = field(default=None, compare=False)
    """Where each part of the merged value was written; None where `source` holds all of it."""

    def place(self, finding: Finding) -> Finding:
        """Return a finding with the file in which its pointer can be followed."""
        if self._overridden(finding.at):
            return replace(finding, source=OVERRIDES)
        return place(finding, self.origins or Origins((self.source, "")))

    def place_all(self, findings: Iterable[Finding]) -> list[Finding]:
        """Return findings in their files; a patch that is wrong in several places is one."""
        return list(dict.fromkeys(self.place(finding) for finding in findings))

    def origin_of(self, at: str) -> Place:
        """Return the file, and the pointer in it, at which a part of the value was written."""
        if self._overridden(at):
            return OVERRIDES, at
        return (self.origins or Origins((self.source, ""))).of(parts_of(at))

    def value(self) -> dict[str, Any]:
        """Return the spec as a JSON value, as it was written once its parents are taken in."""
        return self.form.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def _overridden(self, at: str) -> bool:
        return any(_lies_in(at, pointer("params", name)) for name in self.overrides)


def _lies_in(at: str, outer: str) -> bool:
    """Say whether a pointer is another, or leads further."""
    return at == outer or at.startswith(f"{outer}/")


def load(name: str | Path, overrides: Mapping[str, Any] | None = None) -> LoadedSpec:
    """Read a spec file or a shipped spec.

    Args:
        name: a path, or a shipped name such as `transformer-base`.
        overrides: param to value, winning over the file's own.

    Raises:
        InputError: no such file.
        SpecError: the text or its form is wrong.
    """
    path = find(str(name), *FOLDERS)
    value, origins = inherit(path)
    form = parse_placed(value, str(path), origins)
    return LoadedSpec(form, str(path), dict(overrides or {}), origins)


def loaded(value: Mapping[str, Any], source: str = "<memory>") -> LoadedSpec:
    """Take a spec that is already a JSON value."""
    return LoadedSpec(parse(Spec, dict(value), source), source)


def load_as(value: Any, path: Path, overrides: Mapping[str, Any] | None = None) -> LoadedSpec:
    """Take a value as if it stood in a file, parents and all.

    Raises:
        InputError: a parent cannot be read.
        SpecError: its form is wrong.
    """
    merged, origins = inherited(value, path)
    return LoadedSpec(
        parse_placed(merged, str(path), origins), str(path), dict(overrides or {}), origins
    )


def load_child(parent: LoadedSpec, child: Mapping[str, Any], source: str) -> LoadedSpec:
    """Take a child of a spec that is already loaded, whose overrides stay.

    Raises:
        SpecError: what is wrong with the child.
    """
    base = parent.origins or Origins((parent.source, ""))
    merged, origins = extended(parent.value(), base, child, source)
    form = parse_placed(merged, source, origins)
    return LoadedSpec(form, source, parent.overrides, origins)


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
