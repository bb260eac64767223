"""Load a spec by name or path, merged with the specs it extends and with overrides.

A spec may extend a shipped spec or a spec in its own folder; `extends` cannot contain a path
to another folder.  `inherit.py` defines what a child may change.

A param of an objective may hold the spec of a model:
`"params": {"model": {"spec": "transformer-base", "params": {"layers": 2}}}` names a shipped spec or
one in the folder of the file; a complete spec may stand in place of the name, as in checkpoints.
A `patch` changes the spec as in a file that extends it.  A node with `"use": "=model"` contains
the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .expressions import is_expression
from .findings import (
    Finding,
    InputError,
    Origins,
    Place,
    SpecError,
    at_most,
    pointer,
    with_location,
)
from .form import FORMAT, SpecForm, holds_spec
from .imported_specs import Reported
from .inherit import (
    FOLDERS,
    LONGEST_CHAIN,
    extended,
    inherit,
    inherited,
    parent_of,
    parse_placed,
    recover_placed,
)
from .json_tree import Source, parts_of
from .lost_parts import NOTHING, Lost, words_of
from .reader import current, find, parse, read_json, shipped_names

__all__ = ["FOLDERS", "LONGEST_CHAIN", "LoadedSpec", "load", "loaded", "parse_overrides"]

OVERRIDES = "overrides"
"""File name in a finding about a value that was set by an override."""


@dataclass(frozen=True, slots=True)
class LoadedSpec:
    """A spec and its overrides, ready to be checked."""

    recovered: SpecForm
    """The spec, without the parts that have mistakes of form; see `form`."""
    source: str
    """The file, as the user named it."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Param to the value set for it by `--set` or by the caller."""
    origins: Origins | None = field(default=None, compare=False)
    """Where each part of the merged value was written; None if all of it is in `source`."""
    blocks: tuple[Any, ...] = field(default=(), kw_only=True)
    """Block types that the spec may use besides those of the registry."""

    mistakes: tuple[Finding, ...] = field(default=(), compare=False, kw_only=True)
    """Findings about the form of the spec, in their files."""
    lost: Lost = field(default=NOTHING, compare=False, kw_only=True)
    """The parts that could not be read."""

    @property
    def form(self) -> SpecForm:
        """The spec as written.

        Raises:
            SpecError: it has mistakes of form.
        """
        if self.mistakes:
            raise SpecError(self.mistakes)
        return self.recovered

    def place(self, finding: Finding) -> Finding:
        """Return a finding with the file and pointer where its value was written."""
        if finding.placed:
            return finding
        if self._overridden(finding.at):
            return replace(finding, source=OVERRIDES)
        if self.origins is not None:
            return with_location(finding, self.origins)
        value = None
        if finding.fix and not isinstance(self.source, Source):
            value = self.recovered.model_dump(by_alias=True, exclude_unset=True)
        return with_location(finding, Origins((self.source, "")), value)

    def place_all(self, findings: Iterable[Finding]) -> list[Finding]:
        """Return findings in their files, without duplicates caused by one patch."""
        return list(dict.fromkeys(self.place(finding) for finding in findings))

    def origin_of(self, at: str) -> Place:
        """Return the file and the pointer in it where a part of the value was written."""
        if self._overridden(at):
            return OVERRIDES, at
        return (self.origins or Origins((self.source, ""))).of(parts_of(at))

    def value(self) -> dict[str, Any]:
        """Return the merged spec as a JSON value, with only the keys that were written."""
        return self.form.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def _overridden(self, at: str) -> bool:
        return any(_lies_in(at, pointer("params", name)) for name in self.overrides)


def _lies_in(at: str, outer: str) -> bool:
    """Return whether a pointer equals another or points inside it."""
    return at == outer or at.startswith(f"{outer}/")


def load(
    name: str | Path, overrides: Mapping[str, Any] | None = None, *, kind: str = ""
) -> LoadedSpec:
    """Read a spec file or a shipped spec.

    A spec with mistakes of form is returned with its `mistakes`, so that the checker can find the
    others; its `form` cannot be used.

    Args:
        name: a path, or a shipped name such as `transformer-base`.
        overrides: param to value; these replace the values in the file.
        kind: folder of `specs/` of what it extends, such as `objectives`, if that is known.

    Raises:
        InputError: the file does not exist.
        SpecError: the file cannot be read as a spec at all.
    """
    path = find(str(name), *FOLDERS)
    reported: Reported = []
    value, origins, source = inherit(path, reported, kind)
    return _recovered(value, source, overrides, origins, reported)


def _recovered(
    value: Any,
    source: str,
    overrides: Mapping[str, Any] | None,
    origins: Origins,
    reported: Reported,
) -> LoadedSpec:
    recovered = recover_placed(value, source, origins)
    imports = [finding for _, findings, _ in reported for finding in findings]
    words = {**recovered.lost.words, **{at: words_of(entry) for at, _, entry in reported}}
    return LoadedSpec(
        recovered.form,
        source,
        dict(overrides or {}),
        origins,
        mistakes=tuple(at_most([*recovered.findings, *imports], source)),
        lost=Lost(frozenset(words), words, recovered.lost.extra),
    )


def loaded(value: Mapping[str, Any], source: str = "<memory>") -> LoadedSpec:
    """Return a loaded spec for a JSON value."""
    return LoadedSpec(parse(SpecForm, dict(value), source), source)


def load_as(value: Any, source: str, overrides: Mapping[str, Any] | None = None) -> LoadedSpec:
    """Load a value as if it were the content of a file, with its parents.

    Args:
        value: the file's JSON value.
        source: path of the file, which need not exist.
        overrides: as of `load`.

    Raises:
        InputError: a parent cannot be read.
        SpecError: the value cannot be read as a spec at all.
    """
    reported: Reported = []
    merged, origins = inherited(current(value, source), source, (), reported)
    return _recovered(merged, source, overrides, origins, reported)


def load_child(parent: LoadedSpec, child: Mapping[str, Any], source: str) -> LoadedSpec:
    """Load a child of a loaded spec; the parent's overrides still apply.

    Raises:
        SpecError: the child is invalid.
    """
    base = parent.origins or Origins((parent.source, ""))
    merged, origins = extended(parent.value(), base, child, source)
    form = parse_placed(merged, source, origins)
    return LoadedSpec(form, source, parent.overrides, origins, blocks=parent.blocks)


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """Parse `--set path=value` arguments; a value that is not JSON is a string.

    Raises:
        InputError: an argument has no `=`.
        SpecError: a JSON value has a duplicate key or is nested too deeply.

    >>> parse_overrides(["layers=4", "order=pre"])
    {'layers': 4, 'order': 'pre'}
    """
    overrides: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(
                f"'{text}' is not path=value", location="--set", help="write --set layers=4"
            )
        try:
            overrides[name.strip()] = read_json(value, f"--set {name.strip()}")
        except SpecError as error:
            if any(finding.code != "S01" for finding in error.findings):
                raise
            overrides[name.strip()] = value
    return overrides


KEYS = ("spec", "params", "patch")
"""Keys of a value that holds a spec."""


def inlined(value: Any, source: str, loaded: LoadedSpec | None = None) -> Any:
    """Return the value of a param with the held spec written out, and those inside it.

    Args:
        value: the value of a param, of which the specs can be loaded.
        source: the file that contains it.
        loaded: the spec that it holds, if it is loaded already.
    """
    if loaded is None and holds_spec(value):
        loaded = load_held(value, source)
    if loaded is None:
        return value
    spec = loaded.value()
    if "params" in spec:
        inner = {key: inlined(param, loaded.source) for key, param in spec["params"].items()}
        spec["params"] = inner
    return {**{key: entry for key, entry in value.items() if key == "params"}, "spec": spec}


def spec_names(source: str) -> list[str]:
    """Return the names of the specs that a file can hold: shipped ones and those in its folder."""
    path = Path(source)
    beside = (sibling.stem for sibling in path.parent.glob("*.json")) if source else ()
    names = (*shipped_names(*FOLDERS), *(name for name in beside if name != path.stem))
    return list(dict.fromkeys(names))


class SpecFile(str):
    """Path of a spec that the caller has found, in place of its name."""

    __slots__ = ()


def load_held(value: Mapping[str, Any], source: str) -> LoadedSpec | None:
    """Load the spec that a param holds, without the params that are set next to it.

    Args:
        value: the value of the param.
        source: the file that contains it.

    Returns:
        The spec; None if no spec has this name.

    Raises:
        InputError: the file cannot be read.
        SpecError: the file cannot be read as a spec at all, or the patch is wrong.
    """
    reference, patch = value["spec"], value.get("patch")
    if isinstance(reference, dict):
        loaded = load_as(reference, source)
        if not patch:
            return loaded
        name = loaded.form.name
        return load_child(
            loaded, {"format": FORMAT, "name": name, "extends": name, "patch": patch}, source
        )
    path = (
        Path(reference)
        if isinstance(reference, SpecFile)
        else parent_of(str(reference), Path(source))
    )
    if path is None:
        return None
    if not patch:
        return load(path)
    child = {"format": FORMAT, "name": path.stem, "extends": path.stem, "patch": patch}
    beside = path.with_name(Path(source).name) if isinstance(reference, SpecFile) else source
    return load_as(child, str(beside))


def in_place_of(current: Any, value: Any) -> Any:
    """Return the value that replaces one of a spec.

    In place of a held spec, a name is that of another spec.  Params of the held spec that are
    expressions, such as the number of labels, belong to the objective, so they apply to the new
    spec too unless it has its own.

    Args:
        current: the value of the spec.
        value: the value that replaces it.
    """
    if not holds_spec(current):
        return value
    new = {"spec": value} if isinstance(value, str) else value
    own_params = current.get("params", {})
    if not holds_spec(new) or not isinstance(own_params, dict):
        return new
    bound = {key: param for key, param in own_params.items() if is_expression(param)}
    new_params = new.get("params", {})
    return (
        {**new, "params": {**bound, **new_params}}
        if bound and isinstance(new_params, dict)
        else new
    )
