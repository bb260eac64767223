"""Read a spec with mistakes of form: report them, and leave out or replace the wrong parts.

The checker then finds the mistakes of meaning in the rest.  A part that could not be read is
recorded, so that its consequences are not reported.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ..findings import MOST, Finding, SpecError, nearest, pointer
from ..form import FORMAT, Spec
from ..reader import FOR_EDITORS, parse
from ..upgrade import upgrade_format
from ..wording import error_place
from .lost import NOTHING, Lost, words_of

_CODES = frozenset({"S03", "S04", "N06"})
"""Findings after which the rest of a spec can be read."""
_ROUNDS = 4
"""Most rounds of repairs: a repaired part may contain further mistakes."""
_DROP: Any = object()
"""Stands for a part that is left out."""
_PORT = "lost"
"""Name of a port that stands for ports that could not be read."""
_Losses = dict[str, tuple[frozenset[str] | None, str]]
"""Pointer of a lost part to its words, and the key next to it that an unknown key resembles."""
_EMPTY: dict[str, Any] = {"inputs": {}, "outputs": {_PORT: ""}, "nodes": {}, "axes": {}}


@dataclass(frozen=True, slots=True)
class Recovered:
    """A spec as far as it could be read."""

    form: Spec
    findings: tuple[Finding, ...] = ()
    lost: Lost = NOTHING


def recover(value: Any, source: str) -> Recovered:
    """Validate a JSON value as a spec, without the parts that have mistakes of form.

    Args:
        value: any JSON value.
        source: name of its file, for findings.

    Raises:
        SpecError: the value cannot be read at all, or has too many mistakes.
    """
    try:
        return Recovered(parse(Spec, value, source))
    except SpecError as error:
        if len(error.findings) > MOST or {each.code for each in error.findings} - _CODES:
            raise
        made = _repaired(value)
        if made is None:
            raise
        return Recovered(made[0], error.findings, made[1])


def _repaired(value: Any) -> tuple[Spec, Lost] | None:
    if not isinstance(value, dict):
        return None
    made = copy.deepcopy(upgrade_format(value))
    made.pop(FOR_EDITORS, None)
    lost: _Losses = {}
    for _ in range(_ROUNDS):
        try:
            words = {at: words for at, (words, _) in lost.items()}
            extra = frozenset(at for at, (_, near) in lost.items() if near)
            return Spec.model_validate(made), Lost(frozenset(lost), words, extra)
        except ValidationError as errors:
            for error in reversed(errors.errors()):
                _repair(made, error, lost)
    return None


def _repair(value: dict[str, Any], error: ErrorDetails, lost: _Losses) -> None:
    """Remove or replace the part of a value that one error is about."""
    place, known = error_place(error["loc"], Spec, value)
    try:
        record = _inner(value, place[:-1])
    except (LookupError, TypeError):
        return  # an outer part has been replaced
    if not place or type(record) not in (dict, list):
        return
    last = place[-1]
    if error["type"] == "extra_forbidden":
        inner = record.pop(last, None)
        near = nearest(str(last), known)
        if near and near not in record:
            record[near] = inner
        elif _reads(inner):
            lost[pointer(*place)] = words_of(inner), near
        return
    if place[0] == "step":
        place, record = ["step"], value
    wrong_key = error["type"] == "string_pattern_mismatch" and "[key]" in error["loc"]
    filler = _DROP if wrong_key else _filler(place)
    while filler is _DROP and isinstance(record, list):
        place = place[:-1]  # without one entry, the pointers of the others would shift
        record, filler = _inner(value, place[:-1]), _filler(place)
    last = place[-1]
    inner = record.get(last) if isinstance(record, dict) else record[int(last)]
    if filler is _DROP:
        record.pop(last, None)
    else:
        record[last] = filler
    lost[pointer(*place)] = words_of(inner), ""


def _inner(value: Any, place: list[int | str]) -> Any:
    """Return the part of a value at a path of keys."""
    for key in place:
        value = value[key]
    return value


def _reads(value: Any) -> bool:
    """Return whether a part may read names that would otherwise seem unused."""
    return bool(value) and not isinstance(value, bool | int | float)


def _filler(place: list[int | str]) -> Any:
    """Return what replaces a part with a mistake of form.

    A reference becomes an empty string, which the checker reports at a place that is lost.
    """
    if place[0] == "blocks":
        if len(place) <= 2:  # noqa: PLR2004 - `blocks`, or one template
            return _DROP
        place = place[2:]
    head, depth = place[0], len(place)
    if depth == 1:
        return {"format": FORMAT, "name": "spec", **copy.deepcopy(_EMPTY)}.get(str(head), _DROP)
    if head == "nodes":
        return _in_node(place[2:])
    if head == "tie":
        return [] if depth == 2 else ""  # noqa: PLR2004 - one group
    return {"axes": "time", "inputs": "", "outputs": "", "require": "0 == 0"}.get(str(head), _DROP)


def _in_node(keys: list[int | str]) -> Any:
    """Return what replaces a node or a part of it."""
    in_slot = False
    while len(keys) > 1 and keys[0] == "fill":
        keys, in_slot = keys[2:], True
    if not keys:
        return {"use": ""} if in_slot else {"use": "", "in": {_PORT: ""}}
    if keys[0] == "in":
        return "" if len(keys) > 1 else {_PORT: ""}
    return {"use": "", "block": "", "params": {_PORT: "=?"}, "repeat": "=?"}.get(
        str(keys[0]), _DROP
    )
