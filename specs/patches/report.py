"""Report: what is wrong with a patch's selection, and patches that conflict."""

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
"""Paths that a finding lists at most."""
_COMPARED = 40
"""Paths with which one that selects nothing is compared at most."""


def report_selection(
    patch: Patch, found: Found, walk: Walk, report: Report, *, compare: bool
) -> None:
    """Report a selection that names nothing, or another number than the patch expects.

    Args:
        patch: the change.
        found: what it selects.
        walk: the walk that found it.
        report: takes the finding.
        compare: whether to look for the paths most like one that is not there.
    """
    text, at = patch.selection.text, patch.at("select")
    for why in found.misplaced:
        help_ = "write '*' for every copy" if "share" not in why else "leave the number out"
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
            problem=f"'{text}' selects {count} and not {patch.expect}",
            evidence=(f"selected {_listed(found.paths.values())}",),
            help=f'narrow the selection, or write "expect": {count}'
            if count > patch.expect
            else f'widen the selection, or write "expect": {count}',
        )


def _missed(patch: Patch, found: Found, walk: Walk) -> tuple[str, ...]:
    """Return what those have that are on the path but not as the brackets want."""
    lines = []
    for (scope, site), path in itertools.islice(found.near.items(), _SHOWN):
        record = walk.record(scope, site)
        said = [
            f"{'.'.join(predicate.key)} = {_written(record, predicate.key)}"
            for predicate in patch.selection.predicates
            if not predicate.holds(record)
        ]
        lines.append(f"'{path}' has {', '.join(said)}")
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
        return "change what stands in brackets, or drop it"
    if patch.selection.target == "templates":
        known: list[str] = [f"/blocks/{name}" for name in walk.blocks]
    else:
        known = found.beside
    wanted = patch.selection.path
    most = _COMPARED if len(wanted) <= _COMPARED else _SHOWN
    if len(known) > most:
        known = sorted(known, key=lambda path: (abs(len(path) - len(wanted)), path))[:most]
    # What is most often forgotten is the piece for the copy of a repeat.
    meant = [path for path in walk.paths.values() if path.replace(".*.", ".") == wanted]
    if compare and meant:
        return f"did you mean '{meant[0]}'?"
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5) if compare else []
    near = near or sorted(known)[:_SHOWN]
    return f"nearest: {', '.join(near)}" if near else "there is nothing to select"


def _listed(paths: Iterable[str]) -> str:
    all_ = list(paths)
    return ", ".join(all_[:_SHOWN]) + (", ..." if all_[_SHOWN:] else "")


def report_conflict(one: Edit | Claim, other: Edit | Claim, path: str, report: Report) -> None:
    """Report two patches that cannot both be brought in.

    Args:
        one: what the earlier patch does.
        other: what the later patch does.
        path: that of the scope, in front of the names of its nodes.
        report: takes the finding.
    """
    pair = f"{one.patch.index} and {other.patch.index}"
    both = min(one.path, other.path, key=len)
    if one.patch is other.patch:
        report(
            code="X03",
            at=other.at,
            problem=f"patch {one.patch.index} writes {shown(both, path)}, and inside of it",
            evidence=(_said(one, path), _said(other, path)),
            help="narrow the selection, so that no record lies inside another",
        )
        return
    report(
        code="X03",
        at=other.at,
        problem=f"patches {pair} conflict over {shown(both, path)}",
        evidence=(_said(one, path), _said(other, path)),
        help="narrow one of the two selections, or write one patch for both",
    )


def _said(item: Edit | Claim, path: str) -> str:
    verb = "selects inside" if isinstance(item, Claim) else "writes"
    if isinstance(item, Claim) and "(out)" in item.path:
        verb = "inserts after"
    if isinstance(item, Edit) and item.value is GONE:
        verb = "removes"
    text = item.patch.selection.text
    return f"patch {item.patch.index} {verb} {shown(item.path, path)}, by '{text}'"


def shown(site: Site, path: str) -> str:
    """Return a place in a scope as a person would say it.

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
