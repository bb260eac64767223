"""Apply the fixes of findings that are certain to the text of a file; no torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ...specs.findings import Finding
from ...specs.json_tree import parts_of
from ...specs.text_edits import EditError, PatchOperation, edited

ROUNDS = 10
"""Maximum number of checks: a fix may reveal another mistake that can be fixed."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A text after fixes."""

    text: str
    applied: tuple[Finding, ...]
    """The findings whose fixes were applied, each with its place before them."""
    remaining: tuple[Finding, ...]
    """The findings that remain."""


def fixed(text: str, findings_in: Callable[[str], Iterable[Finding]], source: str) -> Fixed:
    """Apply all certain fixes until none is left; the rest of the text does not change.

    A round of fixes after which one of their findings remains is undone.

    Args:
        text: the text of a spec or a run.
        findings_in: returns all findings of a text.
        source: the file's name; findings in other files are not fixed.
    """
    findings = list(findings_in(text))
    applied: list[Finding] = []
    for _ in range(ROUNDS):
        certain = [finding for finding in findings if finding.fix and finding.fix.certain]
        chosen = _compatible(finding for finding in certain if finding.source == source)
        edited_text, done = _applied(text, chosen)
        remaining = list(findings_in(edited_text)) if done else findings
        if not done or {(finding.code, finding.at) for finding in done} & {
            (e.code, e.at) for e in remaining
        }:
            break
        text, findings = edited_text, remaining
        applied += done
    return Fixed(text, tuple(applied), tuple(findings))


def _compatible(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings whose fixes change different parts, inner parts and last entries first.

    Then no fix changes the pointers of the next one; fixes of several parts, which only add and
    replace, come before the others.
    """
    chosen: dict[str, Finding] = {}
    several: dict[str, Finding] = {}
    for finding in findings:
        edits = finding.fix.edits if finding.fix else ()
        paths = [edit.old or edit.path for edit in edits]
        if chosen.keys().isdisjoint(paths) and several.keys().isdisjoint(paths):
            (several if paths[1:] else chosen).update(dict.fromkeys(paths, finding))
    return [
        *dict.fromkeys(several.values()),
        *(chosen[at] for at in sorted(chosen, key=_order, reverse=True)),
    ]


def _order(at: str) -> tuple[int, list[tuple[int, str]]]:
    keys = parts_of(at)
    return len(keys), [(int(key) if key.isdecimal() else -1, key) for key in keys]


def _applied(text: str, findings: Iterable[Finding]) -> tuple[str, list[Finding]]:
    done = []
    for finding in findings:
        try:
            text = edited(text, finding.fix.edits if finding.fix else ())
        except EditError:
            continue
        done.append(finding)
    return text, done


def described(edit: PatchOperation) -> str:
    """Return what an edit does, in the past tense."""
    if edit.op == "move":
        return f"renamed to '{parts_of(edit.path)[-1]}'"
    if edit.op == "remove":
        return "removed"
    verb = {"add": "added", "replace": "replaced by"}[edit.op]
    return f"{verb} {json.dumps(edit.value, ensure_ascii=False)}"
