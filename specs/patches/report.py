"""Findings about the selections of patches and about conflicts between patches."""

from __future__ import annotations

import difflib
import itertools
import json
from collections.abc import Iterable
from typing import Any

from .edits import GONE, Claim, Edit
from .patch import Patch, Report
from .sites import Found, Site, Walk

_SHOWN = 8
"""Maximum number of paths in a finding."""
_COMPARED = 40
"""Maximum number of paths that an empty selection is compared with."""


def report_selection(
    patch: Patch, found: Found, walk: Walk, report: Report, *, compare: bool
) -> None:
    """Report a selection that is empty, or whose number of places is not the expected one.

    Args:
        patch: the patch.
        found: the places that it selects.
        walk: the walk that found them.
        report: called with the finding.
        compare: whether to search for similar paths if the selection is empty.
    """
    text, at = patch.selection.text, patch.at("select")
    for why in found.misplaced:
        help_ = "write '*' for every copy" if "share" not in why else "omit the number"
        report(code="X09", at=at, problem=why, help=help_)
    if found.misplaced:
        return
    count = len(found.paths)
    if not count:
        report(
            code="X01",
            at=at,
            problem=f"'{text}' selects nothing",
            evidence=_missed(patch, found, walk),
            help=_nearest(patch, found, walk, compare=compare),
        )
    elif patch.expect is not None and count != patch.expect:
        report(
            code="X02",
            at=at,
            problem=f"'{text}' selects {count}, expected {patch.expect}",
            evidence=(f"selected {_listed(found.paths.values())}",),
            help=f'narrow the selection, or write "expect": {count}'
            if count > patch.expect
            else f'widen the selection, or write "expect": {count}',
        )


def _missed(patch: Patch, found: Found, walk: Walk) -> tuple[str, ...]:
    """Return lines about the records that match the path but not the predicates."""
    lines = []
    for (scope, site), path in itertools.islice(found.near.items(), _SHOWN):
        record = walk.record(scope, site)
        values = [
            f"{'.'.join(predicate.key)} = {_written(record, predicate.key)}"
            for predicate in patch.selection.predicates
            if not predicate.holds(record)
        ]
        lines.append(f"'{path}' has {', '.join(values)}")
    return tuple(lines)


def _written(record: Any, key: tuple[str, ...]) -> str:
    if key == ("port",):
        return ", ".join(sorted(record.get("in", {}))) or "none"
    for part in key:
        if not isinstance(record, dict) or part not in record:
            return "nothing"
        record = record[part]
    return record if isinstance(record, str) else json.dumps(record)


def _nearest(patch: Patch, found: Found, walk: Walk, *, compare: bool) -> str:
    if found.near:
        return "change or remove the part in brackets"
    if patch.selection.target == "templates":
        known: list[str] = [f"/blocks/{name}" for name in walk.blocks]
    else:
        known = found.candidates
    wanted = patch.selection.path
    most = _COMPARED if len(wanted) <= _COMPARED else _SHOWN
    if len(known) > most:
        known = sorted(known, key=lambda path: (abs(len(path) - len(wanted)), path))[:most]
    # The most common mistake is to omit the part for the copy of a repeat.
    matches = [path for path in walk.paths.values() if path.replace(".*.", ".") == wanted]
    if compare and matches:
        return f"did you mean '{matches[0]}'?"
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5) if compare else []
    near = near or sorted(known)[:_SHOWN]
    return f"nearest: {', '.join(near)}" if near else "there is nothing to select"


def _listed(paths: Iterable[str]) -> str:
    all_ = list(paths)
    return ", ".join(all_[:_SHOWN]) + (", ..." if all_[_SHOWN:] else "")


def report_conflict(one: Edit | Claim, other: Edit | Claim, path: str, report: Report) -> None:
    """Report two changes that cannot both be applied.

    Args:
        one: change of the earlier patch.
        other: change of the later patch.
        path: path of the scope, which precedes the names of its nodes.
        report: called with the finding.
    """
    pair = f"{one.patch.index} and {other.patch.index}"
    both = min(one.path, other.path, key=len)
    if one.patch is other.patch:
        report(
            code="X03",
            at=other.at,
            problem=f"patch {one.patch.index} writes {shown(both, path)} and a value inside it",
            evidence=(_described(one, path), _described(other, path)),
            help="narrow the selection, so that no record is inside another",
        )
        return
    report(
        code="X03",
        at=other.at,
        problem=f"patches {pair} conflict over {shown(both, path)}",
        evidence=(_described(one, path), _described(other, path)),
        help="narrow one of the two selections, or write one patch for both",
    )


def _described(item: Edit | Claim, path: str) -> str:
    verb = "selects inside" if isinstance(item, Claim) else "writes"
    if isinstance(item, Claim) and "(out)" in item.path:
        verb = "inserts after"
    if isinstance(item, Edit) and item.value is GONE:
        verb = "removes"
    text = item.patch.selection.text
    return f"patch {item.patch.index} {verb} {shown(item.path, path)}, by '{text}'"


def shown(site: Site, path: str) -> str:
    """Return a readable name of a place in a scope.

    >>> shown(("nodes", "norm", "fill", "f", "params", "heads"), "encoder.*.")
    "'params.heads' of 'encoder.*.norm/f'"
    """
    if not site:
        return f"'{path.rstrip('.: ') or '/'}'"
    if site[0] != "nodes" or len(site) == 1:
        return f"'{'.'.join(site)}' of '{path.rstrip('.: ') or '/'}'"
    name, rest = path + site[1], site[2:]
    while rest[:1] == ("fill",) and len(rest) > 1:
        name, rest = f"{name}/{rest[1]}", rest[2:]
    if rest[:1] == ("(out)",):
        return f"'{rest[1]}'"
    return f"'{'.'.join(rest)}' of '{name}'" if rest else f"'{name}'"
