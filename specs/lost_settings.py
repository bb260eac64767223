"""Read settings with mistakes: report all of them, and go on with the others.

A wrong setting is replaced by its default, by a similar name, or by a value that only has the right
form.  What such a guess may cause is not reported; see `Lost`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from .findings import MOST, Finding, SpecError, pointer
from .json_tree import parts_of
from .reader import FOR_EDITORS, Upgrader, parse, upgrade_format, validated
from .wording import CombinedSettingError, error_place, form_findings, keys_of, own_errors

_CODES = frozenset({"S03", "S04", "N06"})
"""Findings after which the other settings can be read."""
_ROUNDS = 16
"""Most rounds of repairs: a repaired part may have further mistakes."""
_FILLERS: tuple[Any, ...] = (
    *(1, 10, 0.5, "lost", True, {}, [], ["lost"]),
    {"type": "file", "path": "lost"},
    {"type": "text", "tokenizer": "lost"},
    {"lines": {"lost": ["lost"]}},
    {"lost": {"type": "text", "tokenizer": "lost"}},
)
"""Values for required settings that could not be read; the first of the right form is taken."""

Form = TypeVar("Form", bound=BaseModel)
Depends = Mapping[str, tuple[str, ...]]
"""Beginning of the places of findings, to the places of wrong settings that may cause them; a place
that ends with `/*` stands for all that it contains."""


@dataclass(frozen=True, slots=True)
class LostSettings:
    """Places of settings that could not be read, in place of which guesses are used."""

    places: frozenset[str] = frozenset()
    depends: Depends = field(default_factory=dict, hash=False)

    def covers(self, at: str) -> bool:
        """Return whether a place is lost, inside a lost place, or contains one."""
        return any(
            _is_in(at, location) or (at and _is_in(location, at)) for location in self.places
        )

    def inside(self, at: str) -> bool:
        """Return whether any setting inside a place, or the place itself, is lost."""
        return any(_is_in(location, at) or _is_in(at, location) for location in self.places)

    def hides(self, at: str) -> bool:
        """Return whether a finding at a place may be a consequence of a lost setting."""
        if not self.places:
            return False
        keys = [key for key in self.depends if at == key or (key and _is_in(at, key))]
        causes = self.depends[max(keys, key=len)] if keys else ()
        return self.covers(at) or any(
            _is_in(location, cause.removesuffix("/*"))
            if cause.endswith("/*")
            else location == cause
            for cause in causes
            for location in self.places
        )


NO_SETTING = LostSettings()
"""Every setting could be read."""


@dataclass(frozen=True, slots=True)
class ReadSettings(Generic[Form]):
    """Settings as far as they could be read."""

    form: Form | None
    """The settings, with guesses for the wrong ones; None if there is no guess."""
    findings: tuple[Finding, ...] = ()
    lost: LostSettings = NO_SETTING
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Place of a setting under the key that was meant, to its place as written."""
    removed: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Pointer of a list to the numbers of its removed entries, as they were written."""

    def written(self, at: str) -> str:
        """Return the place of a setting in the file."""
        path = ""
        for part in at.split("/")[1:]:
            key = part
            for number in sorted(self.removed.get(path, ())):
                key = str(int(key) + (int(key) >= number))
            path += f"/{key}"
            path = self.renamed.get(path, path)
        return path


def read_settings(
    form: type[Form],
    value: Any,
    source: str,
    formats: Mapping[int, Upgrader],
    depends: Depends,
) -> ReadSettings[Form]:
    """Validate a JSON value as settings, and report every mistake in it.

    Args:
        form: class of the settings.
        value: any JSON value.
        source: name of its file, for findings.
        formats: older format to its upgrader.
        depends: which findings the guesses for wrong settings may cause.

    Raises:
        SpecError: the value is not an object, or has an unknown format.
    """
    try:
        return ReadSettings(parse(form, value, source, formats, strict=True))
    except SpecError as error:
        if {finding.code for finding in error.findings} - _CODES or not isinstance(value, dict):
            raise
    settings = copy.deepcopy(upgrade_format(value, formats))
    settings.pop(FOR_EDITORS, None)
    return _Reader(form, settings, source, depends).read()


class _Reader(Generic[Form]):
    """Repairs a value until it can be read."""

    def __init__(
        self, form: type[Form], value: dict[str, Any], source: str, depends: Depends
    ) -> None:
        self.form, self.value, self.source, self.depends = form, value, source, depends
        self.findings: list[Finding] = []
        self.lost: set[str] = set()
        self.renamed: dict[str, str] = {}
        self.removed: dict[str, list[int]] = {}
        self.reported: set[tuple[object, ...]] = set()
        """Errors about settings that do not fit together, which do not end the reading."""

    def read(self) -> ReadSettings[Form]:
        """Return what can be read, and the findings about the rest."""
        for _ in range(_ROUNDS):
            try:
                return self._read(validated(self.form, self.value, self.reported))
            except ValidationError as errors:
                if not self._repair(own_errors(errors.errors())):
                    break
        return self._read(None)

    def _lost(self) -> LostSettings:
        return LostSettings(frozenset(self.lost), self.depends)

    def _repair(self, errors: Any) -> bool:
        """Report errors and repair what they are about; return whether anything was repaired."""
        repairs: list[tuple[ErrorDetails, Finding]] = []
        repaired, lost = False, self._lost()
        for error in errors:
            raised = error.get("ctx", {}).get("error")
            for finding in form_findings(error, self.form, self.value, self.source):
                relocated = replace(finding, at=self._written(finding.at))
                loc = error_place(error["loc"], self.form, self.value)[0]
                again = error["type"] == "missing" and lost.covers(self._written(pointer(*loc)))
                if not (again or lost.hides(relocated.at) or relocated in self.findings):
                    self.findings.append(relocated)
                if isinstance(raised, CombinedSettingError) and raised.complete:
                    self.reported |= {keys_of(error) for error in raised.errors}
                    repaired = True
                else:
                    repairs.append((error, finding))
        # From the last entry of a list to the first, so that places stay right.
        repairs.sort(key=lambda repair: _order(repair[1].at), reverse=True)
        for error, finding in repairs:
            loc = error_place(error["loc"], self.form, self.value)[0]
            if error["type"] == "missing":
                repaired = self._fill(loc) or repaired
            elif error["type"] == "extra_forbidden":
                repaired = self._without_key(loc, finding) or repaired
            else:
                repaired = self._without_value(finding) or repaired
        return repaired

    def _without_key(self, loc: list[int | str], finding: Finding) -> bool:
        """Give an unknown key the name of the known one that it resembles, or remove it."""
        record = self._inner(loc[:-1])
        if not isinstance(record, dict) or loc[-1] not in record:
            return False
        inner = record.pop(str(loc[-1]))
        if not finding.fix:
            self.lost.add(self._written(finding.at))
        for edit in finding.fix.edits if finding.fix else ():
            key = parts_of(edit.path)[-1]
            if edit.op == "move" and key not in record:
                record[key] = inner
                self.renamed[pointer(*loc[:-1], key)] = self._written(finding.at)
        return True

    def _without_value(self, finding: Finding) -> bool:
        """Write what a fix suggests in place of a wrong value, or remove it."""
        loc: list[int | str] = [*parts_of(finding.at)]
        record = self._inner(loc[:-1]) if loc else None
        written = self._written(finding.at)
        self.lost.add(written)
        if isinstance(record, list) and int(loc[-1]) < len(record):
            del record[int(loc[-1])]
            around = written.rpartition("/")
            self.removed.setdefault(around[0], []).append(int(around[2]))
            return True
        if not isinstance(record, dict) or loc[-1] not in record:
            return False
        for edit in finding.fix.edits if finding.fix else ():
            if edit.op == "replace":
                record[loc[-1]] = edit.value
                return True
        del record[loc[-1]]
        return self._fill(loc) if self._is_entry(loc) else True

    def _is_entry(self, loc: list[int | str]) -> bool:
        """Return whether a place is that of an entry with a name of its own, which others use."""
        return len(loc) > 1 and loc[-2] in ("tokenizers", "columns", "test")

    def _fill(self, loc: list[int | str]) -> bool:
        """Write something of the right form at a place; without it, the record around is lost."""
        record = self._inner(loc[:-1])
        if not isinstance(record, dict):
            return False
        self.lost.add(self._written(pointer(*loc)))
        for filler in _FILLERS:
            record[str(loc[-1])] = copy.deepcopy(filler)
            if not self._is_wrong(loc):
                return True
        del record[str(loc[-1])]
        if len(loc) > 1:
            around = self._inner(loc[:-2])
            self.lost.add(self._written(pointer(*loc[:-1])))
            if isinstance(around, dict):
                del around[loc[-2]]
                return True
        return False

    def _is_wrong(self, loc: list[int | str]) -> bool:
        try:
            validated(self.form, self.value, self.reported)
        except ValidationError as errors:
            at = pointer(*loc)
            places = (
                error_place(error["loc"], self.form, self.value)[0] for error in errors.errors()
            )
            return any(_is_in(pointer(*loc), at) for loc in places)
        return False

    def _inner(self, loc: list[int | str]) -> Any:
        """Return the part of the value at a path; None if there is none."""
        inner: Any = self.value
        for key in loc:
            if isinstance(inner, list) and str(key).isdecimal() and int(key) < len(inner):
                inner = inner[int(key)]
            elif isinstance(inner, dict) and key in inner:
                inner = inner[key]
            else:
                return None
        return inner

    def _written(self, at: str) -> str:
        """Return the pointer of a part in the value as it was written."""
        return self._read(None).written(at)

    def _read(self, form: Form | None) -> ReadSettings[Form]:
        findings = tuple(self.findings[:MOST])
        return ReadSettings(form, findings, self._lost(), self.renamed, self.removed)


def _order(at: str) -> tuple[tuple[str, int], ...]:
    return tuple(("", int(key)) if key.isdecimal() else (key, 0) for key in at.split("/"))


def _is_in(at: str, outer: str) -> bool:
    """Return whether a pointer equals another or points inside it."""
    return at == outer or at.startswith(f"{outer}/")
