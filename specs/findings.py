"""Findings: what is wrong with an input, where, and the way out.

Every mistake a person can make in a spec, a run file, a corpus or a checkpoint
reaches them as one of these, and the command line turns it into exit code 1.
"""

from __future__ import annotations

import bisect
import difflib
import functools
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

MOST = 200
"""Findings after which looking for more would help nobody."""
_SHOWN = 12
"""Known names that a help line lists at most."""
_LONGEST = 300
"""Characters of one line that a finding shows."""
_COMPARED = 1_000
"""Letters of a misspelt name that are compared at most, counted anew for each known one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing wrong with a spec or a run file."""

    code: str
    """Stable identifier such as ``"T03"``; `docs/errors.md` has a paragraph for each."""
    at: str
    """JSON Pointer (RFC 6901) to the offending value; ``""`` is the whole file."""
    problem: str
    """One lower-case clause, no full stop, naming what the reader wrote."""
    evidence: tuple[str, ...] = ()
    """The two sides that disagree, one line each."""
    help: str = ""
    """An edit that would mend it, or ``""`` when none can be known."""
    source: str = ""
    """The file, as the user named it."""

    def render(self) -> str:
        """Return the finding as text for a person."""
        lines = [f"error[{self.code}]: {_shown(self.problem)}"]
        lines.append(f"  --> {_shown(f'{self.source}#{self.at}')}")
        lines += [f"      {_shown(line)}" for line in self.evidence]
        if self.help:
            lines.append(f"  help: {_shown(self.help)}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, object]:
        """Return the finding as plain data for an editor."""
        return {
            "code": self.code,
            "source": self.source,
            "pointer": self.at,
            "problem": self.problem,
            "evidence": list(self.evidence),
            "help": self.help,
        }


def _shown(text: str) -> str:
    """Return one line of a stranger's text that a terminal shows and does not obey."""
    clipped = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in clipped)


class InputError(Exception):
    """Something given from outside is wrong: a file, a line, a value.

    The message names the place; `help` is the way out.  Commands print both and
    exit with 1.
    """

    def __init__(self, problem: str, *, place: str = "", help: str = "") -> None:  # noqa: A002 - the finding's own word
        """Keep the three parts, and join them for `str()`.

        Args:
            problem: one lower-case clause, no full stop.
            place: file, line, or pointer.
            help: an edit or a command that would mend it.
        """
        self.problem, self.place, self.help = problem, place, help
        lines = [problem]
        if place:
            lines.append(f"  --> {place}")
        if help:
            lines.append(f"  help: {help}")
        super().__init__("\n".join(lines))


class SpecError(InputError):
    """A spec or run file has findings; all of them are here."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        """Keep every finding; the message is all of them rendered."""
        self.findings = tuple(findings)
        super().__init__("\n\n".join(finding.render() for finding in self.findings))


def too_many(source: str) -> Finding:
    """Return the last finding of a list that was cut off at `MOST`."""
    return Finding(
        code="S08",
        at="",
        problem=f"more than {MOST} findings; the rest is left out",
        help="mend these first",
        source=source,
    )


def at_most(findings: Iterable[Finding], source: str) -> list[Finding]:
    """Return findings, cut off at `MOST`."""
    kept = list(itertools.islice(findings, MOST + 1))
    return kept if len(kept) <= MOST else [*kept[:MOST], too_many(source)]


def pointer(*parts: str | int) -> str:
    """Return the JSON Pointer of a path of keys.

    >>> pointer("nodes", "a/b", "in")
    '/nodes/a~1b/in'
    """
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known name most like `word`, or ``""`` when none is near.

    >>> nearest("hedas", ["heads", "d_model"])
    'heads'
    """
    return "" if len(word) > _LONGEST else _nearest(word, tuple(sorted(known)))


@functools.lru_cache(maxsize=256)
def _nearest(word: str, names: tuple[str, ...]) -> str:
    """Return the nearest of sorted names; among very many, only those about as they begin."""
    side = max(8, _COMPARED // max(1, len(word)) // 2)
    at = bisect.bisect(names, word)
    close = difflib.get_close_matches(word, names[max(0, at - side) : at + side], n=1, cutoff=0.6)
    return close[0] if close else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a help line: the nearest known name, or the list of them.

    >>> did_you_mean("hedas", ["heads", "d_model"])
    "did you mean 'heads'?"
    """
    names = sorted(known)
    near = nearest(word, names)
    if near:
        return f"did you mean '{near}'?"
    if not names:
        return ""
    shown = ", ".join(names[:_SHOWN]) + (", ..." if names[_SHOWN:] else "")
    return f"known: {shown}"
