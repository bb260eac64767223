"""Apply the fixes of findings that are certain to the text of a file; no torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ...specs.findings import Finding
from ...specs.text.edits import Edit, EditError, edited
from ...specs.text.places import parts_of

ROUNDS = 10
"""Maximum number of checks: a fix may reveal another mistake that can be fixed."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A text after fixes."""

    text: str
    applied: tuple[Finding, ...]
    """The findings whose fixes were applied, each with its place before them."""
    left: tuple[Finding, ...]
    """The findings that remain."""


def fixed(text: str, findings_in: Callable[[str], Iterable[Finding]], source: str) -> Fixed:
    """Apply all certain fixes until none is left; the rest of the text does not change.

    A round of fixes after which one of their findings remains is undone.

    Args:
        text: the text of a spec or a run.
        findings_in: returns all findings of a text.
        source: the file's name; findings in other files are not fixed.
    """
    found = list(findings_in(text))
    applied: list[Finding] = []
    for _ in range(ROUNDS):
        certain = [each for each in found if each.fix and each.fix.certain]
        chosen = _compatible(each for each in certain if each.source == source)
        made, done = _applied(text, chosen)
        left = list(findings_in(made)) if done else found
        if not done or {(each.code, each.at) for each in done} & {(e.code, e.at) for e in left}:
            break
        text, found = made, left
        applied += done
    return Fixed(text, tuple(applied), tuple(found))


def _compatible(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings whose fixes change different parts, inner parts and last entries first.

    Then no fix changes the pointers of the next one.
    """
    chosen: dict[str, Finding] = {}
    for each in findings:
        [edit, *more] = each.fix.edits if each.fix else ()
        if not more:
            chosen.setdefault(edit.old or edit.path, each)
    return [chosen[at] for at in sorted(chosen, key=_order, reverse=True)]


def _order(at: str) -> tuple[int, list[tuple[int, str]]]:
    keys = parts_of(at)
    return len(keys), [(int(key) if key.isdecimal() else -1, key) for key in keys]


def _applied(text: str, findings: Iterable[Finding]) -> tuple[str, list[Finding]]:
    done = []
    for each in findings:
        try:
            text = edited(text, each.fix.edits if each.fix else ())
        except EditError:
            continue
        done.append(each)
    return text, done


def described(edit: Edit) -> str:
    """Return what an edit does, in the past tense."""
    if edit.op == "move":
        return f"renamed to '{parts_of(edit.path)[-1]}'"
    if edit.op == "remove":
        return "removed"
    verb = {"add": "added", "replace": "replaced by"}[edit.op]
    return f"{verb} {json.dumps(edit.value, ensure_ascii=False)}"
