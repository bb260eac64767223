"""Findings of a text with their ranges, and their fixes as edits of the text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ....plugin import Finding
from ....runtime.spec.fixing import described, fixed
from ....specs.json_tree import Spot
from ....specs.text_edits import EditError, PatchOperation, TextEdit, edited, smallest_edit
from .document import TextDocument, document


@dataclass(frozen=True, slots=True)
class TextFix:
    """A change that removes a finding."""

    title: str
    edits: tuple[TextEdit, ...]
    certain: bool
    """Whether nothing else can have been meant."""

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        edits = [edit.as_json() for edit in self.edits]
        return {"title": self.title, "edits": edits, "certain": self.certain}


@dataclass(frozen=True, slots=True)
class Problem:
    """A finding in a text, with its range in characters."""

    start: int
    end: int
    severity: str
    """`error` or `warning`."""
    code: str
    message: str
    """The problem, both sides and the help, one line each."""
    fixes: tuple[TextFix, ...]
    finding: Finding

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON data, without the finding."""
        return {
            "start": self.start,
            "end": self.end,
            "severity": self.severity,
            "code": self.code,
            "message": self.message,
            "fixes": [fix.as_json() for fix in self.fixes],
        }


def findings(text: str, path: str) -> list[Problem]:
    """Return everything that is wrong with or unusual in a text, in the order of the text.

    A finding in a parent of the spec is placed at the name of the parent.

    Args:
        text: a spec, a run or a study; of any other JSON text, only mistakes of syntax are found.
        path: its file.
    """
    doc = document(text, path)
    problems = [_problem(doc, finding) for finding in doc.explored.findings]
    return sorted(problems, key=lambda problem: (problem.start, problem.end))


def _problem(doc: TextDocument, finding: Finding) -> Problem:
    lines = [finding.problem, *finding.evidence]
    if finding.help:
        lines.append(f"help: {finding.help}")
    local = str(finding.source) in (doc.path, "")
    start, end = _range(doc, finding) if local else _parent(doc)
    if not local:
        lines.append(f"in {finding.location}")
    fixes = _fixes(doc.text, finding) if local else ()
    return Problem(start, end, finding.level, finding.code, "\n".join(lines), fixes, finding)


def _range(doc: TextDocument, finding: Finding) -> tuple[int, int]:
    spot = finding.spot
    if spot is None:
        value = doc.root.get(*_keys(finding.at))
        return (value.key or (value.start, value.end)) if value else (0, 0)
    return span(doc.text, spot)


def _keys(at: str) -> Iterable[str]:
    return (part.replace("~1", "/").replace("~0", "~") for part in at.split("/")[1:])


def span(text: str, spot: Spot) -> tuple[int, int]:
    """Return a place in a text as offsets."""
    starts = [0]
    for line in range(1, spot.end_line):
        starts.append(text.index("\n", starts[line - 1]) + 1)
    begin = starts[spot.line - 1] + spot.column - 1
    return begin, starts[spot.end_line - 1] + spot.end_column - 1


def _parent(doc: TextDocument) -> tuple[int, int]:
    """Return the range of the name of the parent, or of the first character."""
    value = doc.root.get("extends") or doc.root.get("run") or doc.root.get("objective")
    return (value.start, value.end) if value else (0, min(1, len(doc.text)))


def _fixes(text: str, finding: Finding) -> tuple[TextFix, ...]:
    if finding.fix is None:
        return ()
    try:
        new = edited(text, finding.fix.edits)
    except EditError:
        return ()
    edits = finding.fix.edits
    title = _shown(edits[0]) if len(edits) == 1 else finding.help.partition(";")[0]
    return (TextFix(title, (smallest_edit(text, new),), finding.fix.certain),)


def _shown(edit: PatchOperation) -> str:
    """Return what an edit does, as an imperative."""
    done = described(edit)
    at = (edit.old or edit.path).rpartition("/")[2]
    words = {
        "renamed to": "rename to",
        "removed": f"remove '{at}'",
        "added": f"add '{at}':",
        "replaced by": "replace by",
    }
    return next(
        (new + done.removeprefix(old) for old, new in words.items() if done[: len(old)] == old),
        done,
    )


def fix_all(text: str, path: str) -> list[TextEdit]:
    """Return the edits that make every certain fix, as `weft check --fix` does."""
    result = fixed(text, lambda draft: document(draft, path).explored.findings, path)
    return [smallest_edit(text, result.text)] if result.text != text else []
