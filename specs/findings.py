"""Findings: what is wrong with an input, where, and how to fix it.

Weft reports every mistake in a spec, a run file, a corpus or a checkpoint as a finding,
and the command line then exits with code 1.  `Origins` records the file and the place where each
part of a merged spec was written.
"""

from __future__ import annotations

import bisect
import difflib
import functools
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from .escaping import on_one_line, printable
from .json_tree import Source, Spot, is_in, part_at, parts_of, spot
from .text_edits import Fix, renaming, replacing

MOST = 200
"""Maximum number of findings in one report."""
_SHOWN = 12
"""Maximum number of known names that a help line lists."""
_LONGEST = 300
"""Maximum number of characters in one line of a finding."""
_ABOUT_KEYS = frozenset(
    ["S02", "S03", "N03", "N04", "N06", "N09", "P04", "P08", "W03", "W04", "W08"]
)
"""Codes of findings about the name of a value, whose place is that of the key."""
_ALIKE = 0.5
"""Least similarity of two words of names of which one may be a misspelling of the other."""
_SURE, _LEAD = 0.75, 0.6
"""Least similarity of a name that was certainly meant; and what part of the difference of the next
name its own difference may be."""
_COMPARED = 1_000
"""Limit on the length of a misspelled name times the number of names it is compared with."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Finding:
    """One problem in a spec or a run file."""

    code: str
    """Stable identifier such as ``"T03"``; `docs/errors.md` has a paragraph for each."""
    at: str
    """JSON Pointer (RFC 6901) to the offending value; ``""`` is the file itself."""
    problem: str
    """One lower-case clause without a full stop, quoting names as the user wrote them."""
    level: Literal["error", "warning"] = "error"
    """A warning is about a correct spec: something unusual, which most often is a mistake."""
    evidence: tuple[str, ...] = ()
    """The two conflicting sides, one line each."""
    help: str = ""
    """An edit that would fix the problem, or ``""`` when none is known."""
    source: str = ""
    """The file, as the user named it."""
    fix: Fix | None = field(default=None, compare=False)
    """Edits of the file that carry out `help`, if a program can make them."""
    placed: bool = field(default=False, compare=False)
    """Whether `at` and `source` are those of the file in which the value was written."""
    offset: int | None = None
    """Where in the file's text the problem is, in characters, if `at` cannot say it."""

    @property
    def spot(self) -> Spot | None:
        """The line and the columns of the problem; None if the file's text is not known."""
        if not isinstance(self.source, Source):
            return None
        return spot(self.source.text, self.at, self.offset, key=self.code in _ABOUT_KEYS)

    @property
    def location(self) -> str:
        """The file, with line and column if its text is known, and the pointer."""
        spot = self.spot
        if spot is None:
            return f"{self.source}#{self.at}"
        return f"{self.source}:{spot.line}:{spot.column}" + (f"  #{self.at}" if self.at else "")

    def __repr__(self) -> str:
        """Return code, location and problem on one line."""
        return f"<Finding {self.code} at {_shown(self.at) or '/'}: {_shown(self.problem)}>"

    def render(self) -> str:
        """Return the finding as human-readable text."""
        spot = self.spot
        code = f"[{self.code}]" if self.code else ""
        lines = [f"{self.level}{code}: {_shown(self.problem)}"]
        lines.append(f"  --> {_shown(self.location)}")
        lines += spot.quoted() if spot else []
        lines += [f"      {_shown(line)}" for line in self.evidence]
        if self.help:
            lines.append(f"  help: {_shown(self.help)}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, object]:
        """Return the finding as JSON data, for editors and other programs.

        Lines and columns are counted from 1, and the end is exclusive; they are None if the text
        of the file is not known.
        """
        spot = self.spot
        return {
            "code": self.code,
            "level": self.level,
            "source": self.source,
            "pointer": self.at,
            "line": spot.line if spot else None,
            "column": spot.column if spot else None,
            "end_line": spot.end_line if spot else None,
            "end_column": spot.end_column if spot else None,
            "problem": self.problem,
            "evidence": list(self.evidence),
            "help": self.help,
            "fix": self.fix.as_json() if self.fix else None,
        }


def _shown(text: str) -> str:
    """Return one line of untrusted text, shortened, with control characters escaped."""
    text = re.sub(r" *\n *", " ", text)  # help may be the text of several lines
    clipped = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."
    return printable(clipped.replace("\t", " "))


class WeftError(Exception):
    """Base class of all exceptions that Weft raises on purpose."""


class InputError(WeftError):
    """An input is wrong: a file, a line, a value, or the argument of a function.

    The message names the location, and `help` says how to fix it.  Commands print both and
    exit with code 1.
    """

    def __init__(self, problem: str, *, location: str = "", help: str = "") -> None:  # noqa: A002 - as Finding.help
        """Store the three parts and join them for `str()`.

        Args:
            problem: one lower-case clause without a full stop.
            location: file, line or pointer.
            help: an edit or a command that would fix the problem.
        """
        self.problem, self.location, self.help = problem, location, help
        lines = [printable(problem)]
        if location:
            lines.append(f"  --> {on_one_line(location)}")
        if help:
            lines.append(f"  help: {printable(help)}")
        super().__init__("\n".join(lines))


class SpecError(InputError):
    """A spec or run file has findings; `findings` contains all of them."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        """Store every finding; the message contains all of them as text."""
        self.findings = tuple(findings)
        super().__init__("\n\n".join(finding.render() for finding in self.findings))

    def __reduce__(self) -> tuple[type[Self], tuple[tuple[Finding, ...]]]:
        """Pickle the findings, so that the error of a worker process arrives complete."""
        return type(self), (self.findings,)


def too_many(source: str) -> Finding:
    """Return the finding that ends a list truncated at `MOST`."""
    return Finding(
        code="S08",
        at="",
        problem=f"more than {MOST} findings; the rest are omitted",
        help="fix these first",
        source=source,
    )


def at_most(findings: Iterable[Finding], source: str) -> list[Finding]:
    """Return the findings; a list longer than `MOST` is truncated and says so at its end."""
    limited = list(itertools.islice(findings, MOST + 1))
    return limited if len(limited) <= MOST else [*limited[:MOST], too_many(source)]


def pointer(*parts: str | int) -> str:
    """Return the JSON Pointer for a path of keys.

    >>> pointer("nodes", "a/b", "in")
    '/nodes/a~1b/in'
    """
    text = "/".join(map(str, ("", *parts)))
    if "~" not in text and text.count("/") == len(parts):
        return text
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def nearest(word: str, candidates: Iterable[str]) -> str:
    """Return the known name most similar to `word`, or ``""`` when none is similar.

    >>> nearest("hedas", ["heads", "d_model"])
    'heads'
    """
    return "" if len(word) > _LONGEST else _nearest(word, tuple(sorted(candidates)))


@functools.lru_cache(maxsize=256)
def _nearest(word: str, names: tuple[str, ...]) -> str:
    """Return the nearest of sorted names."""
    close = difflib.get_close_matches(word, _neighbors(word, names), n=3, cutoff=0.6)
    return next((name for name in close if _same_words(word, name)), "")


def _same_words(word: str, other: str) -> bool:
    """Return whether the words of two names are similar, one by one.

    `source_embedding` is not a misspelling of `target_embedding`, though it has the same ending.

    >>> _same_words("source_embedding", "target_embedding"), _same_words("d_modle", "d_model")
    (False, True)
    """
    pairs = list(itertools.zip_longest(*(re.split(r"[_.@-]", name) for name in (word, other))))
    if len(pairs) == 1 or any(None in pair for pair in pairs):
        return True
    compare = difflib.SequenceMatcher(autojunk=False)
    for mine, theirs in pairs:
        compare.set_seqs(mine, theirs)
        if min(len(mine), len(theirs)) > 2 and compare.ratio() < _ALIKE:  # noqa: PLR2004
            return False
    return True


def _neighbors(word: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return sorted names; of a long list, only those next to `word`."""
    side = max(8, _COMPARED // max(1, len(word)) // 2)
    at = bisect.bisect(names, word)
    return names[max(0, at - side) : at + side]


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return a help line with the nearest known name, or with a list of known names.

    >>> did_you_mean("hedas", ["heads", "d_model"])
    "did you mean 'heads'?"
    """
    names = sorted(candidates)
    near = nearest(word, names)
    if near:
        return f"did you mean '{near}'?"
    if not names:
        return ""
    shown = ", ".join(names[:_SHOWN]) + (", ..." if names[_SHOWN:] else "")
    return f"known: {shown}"


def nearest_shipped(word: str, candidates: Iterable[str], kind: str = "specs") -> str:
    """Return a help line with the nearest names of files, and the command that lists them all.

    Args:
        word: what was written.
        candidates: names of files.
        kind: what `weft list` calls those that ship.
    """
    names = sorted(candidates)
    if near := nearest(word, names):
        return f"did you mean '{near}'?"
    close = [] if len(word) > _LONGEST else difflib.get_close_matches(word, names, cutoff=0.5)
    start = f"the nearest names are {', '.join(close)}; " if close else ""
    return f"{start}'weft list {kind}' lists those that ship"


def certainly_meant(word: str, candidates: Iterable[str]) -> bool:
    """Return whether one known name is very similar to `word`, and much more so than any other.

    >>> certainly_meant("hedas", ["heads", "d_model"]), certainly_meant("d_x", ["d_k", "d_v"])
    (True, False)
    """
    names = tuple(sorted(candidates))
    numbers = re.findall(r"\d+", word)  # another number is another name, however similar
    if len(word) > _LONGEST or re.findall(r"\d+", nearest(word, names)) != numbers:
        return False
    return _certainly_meant(word, names)


@functools.lru_cache(maxsize=256)
def _certainly_meant(word: str, names: tuple[str, ...]) -> bool:
    compare = difflib.SequenceMatcher(b=word, autojunk=False)
    ratios = [0.0, 0.0]
    for name in _neighbors(word, names):
        compare.set_seq1(name)
        if compare.real_quick_ratio() > ratios[1] and compare.quick_ratio() > ratios[1]:
            ratios = sorted([*ratios, compare.ratio()], reverse=True)[:2]
    return ratios[0] >= _SURE and 1 - ratios[0] <= _LEAD * (1 - ratios[1])


def respelled(at: str, word: str, candidates: Iterable[str], text: str = "{}") -> Fix | None:
    """Return the fix that replaces a misspelled name, or None if no known name is similar.

    Args:
        at: JSON Pointer of the value.
        word: the name as written.
        candidates: names that could have been meant.
        text: the value, with `{}` where the name is.
    """
    names = list(candidates)
    near = nearest(word, names)
    if not near:
        return None
    return replacing(at, text.replace("{}", near), certain=certainly_meant(word, names))


def with_gap(text: str, word: str) -> str:
    """Return a text with `{}` for each occurrence of a word, as `respelled` takes it.

    >>> with_gap("=2*d_modle+d", "d_modle")
    '=2*{}+d'
    """
    return re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", "{}", text)


def renamed(at: str, key: str, candidates: Iterable[str], taken: Iterable[str] = ()) -> Fix | None:
    """Return the fix that renames a misspelled key, or None if no known key is similar.

    Args:
        at: JSON Pointer of the value with the key.
        key: the key as written.
        candidates: keys that could have been meant.
        taken: keys that the object has in its file; the keys of a merged object are checked
            against the file in which the misspelled one was written.
    """
    names = list(candidates)
    near = nearest(key, names)
    if not near or near in taken:
        return None
    return renaming(at, near, certain=certainly_meant(key, names))


Place = tuple[str, str]
"""A file and a JSON Pointer in it."""


class Origins:
    """A sparse tree with the places where the parts of a value were written.

    A part without its own place has the place of the record that contains it.
    """

    __slots__ = ("inner", "location")

    def __init__(self, location: Place | None = None) -> None:
        """Create a tree with one place for the complete value, or none."""
        self.location = location
        self.inner: dict[str, Origins] = {}

    def of(self, path: Iterable[str]) -> Place:
        """Return the file and the pointer of the value at a path of keys."""
        origin: Origins | None = self
        (file, base), remaining = self.location or ("", ""), list[str]()
        for part in path:
            remaining.append(part)
            origin = origin.inner.get(part) if origin else None
            if origin is not None and origin.location is not None:
                (file, base), remaining = origin.location, []
        return file, base + pointer(*remaining)

    def at(self, path: Iterable[str]) -> Origins:
        """Return the subtree at a path, creating it if necessary."""
        tree = self
        for part in path:
            tree = tree.inner.setdefault(part, Origins())
        return tree

    def put(self, path: Iterable[str], location: Place) -> None:
        """Record that the complete value at a path was written at a place."""
        tree = self.at(path)
        tree.location = location
        tree.inner.clear()

    def pin(self, path: tuple[str, ...], keys: Iterable[str], location: Place) -> None:
        """Record that a record was written at a place; `keys` keep their own places."""
        tree = self.at(path)
        for key in keys:
            tree.at((key,)).location = self.of((*path, key))
        tree.location = location

    def copied(self, path: tuple[str, ...]) -> Origins:
        """Return the tree for a copy of the value at a path."""
        source: Origins | None = self
        for part in path:
            source = source.inner.get(part) if source else None
        tree = source.twin() if source else Origins()
        tree.location = self.of(path)
        return tree

    def twin(self) -> Origins:
        """Return an independent copy."""
        tree = Origins(self.location)
        tree.inner = {key: inner.twin() for key, inner in self.inner.items()}
        return tree


def with_location(finding: Finding, origins: Origins, value: Any = None) -> Finding:
    """Return a finding with the file, and the pointer in it, where its value was written.

    Args:
        finding: a finding with the pointers of a merged value.
        origins: where the parts of the merged value were written.
        value: the value of the file, if its text is not known.
    """
    file, at = origins.of(parts_of(finding.at))
    fix = _placed_fix(finding.fix, file, origins, value) if finding.fix else None
    return replace(finding, at=at, source=file, fix=fix)


def _placed_fix(fix: Fix, file: str, origins: Origins, value: Any) -> Fix | None:
    """Return a fix with pointers into the file in which its parts were written.

    It is None if not all of them were written in that file, or not as the fix needs them: a key can
    only get a name that no other key beside it has there.
    """
    edits = []
    for edit in fix.edits:
        there, at = origins.of(parts_of(edit.old if edit.op == "move" else edit.path))
        if edit.op == "add":
            *above, key = parts_of(edit.path)
            there, at = origins.of(above)
            at += pointer(key)
        if there != file:
            return None
        if edit.op != "move":
            edits.append(replace(edit, path=at))
            continue
        *above, key = parts_of(at)
        renamed_key = _renamed_key(key, parts_of(edit.old), parts_of(edit.path)[-1])
        new = pointer(*above, renamed_key)
        if not renamed_key or _has(file, value, new):
            return None
        edits.append(replace(edit, path=new, old=at))
    return replace(fix, edits=tuple(edits))


def _renamed_key(key: str, path: Sequence[str], name: str) -> str:
    """Return a key with a new name for a part of its path, or "" if it does not write that part.

    A patch may write a key with the path to it, such as `params.heads`.

    Args:
        key: the key as written.
        path: the keys from the root of the merged value to the renamed part.
        name: its new name.
    """
    if key == path[-1]:
        return name
    parts = key.split(".")
    for last in reversed(range(len(parts))):
        if tuple(parts[: last + 1]) == tuple(path[-last - 1 :]):
            return ".".join([*parts[:last], name, *parts[last + 1 :]])
    return ""


def _has(file: str, value: Any, at: str) -> bool:
    """Return whether a file, by its text or its value, has a part at a pointer."""
    return part_at(file.text, at)[1] if isinstance(file, Source) else is_in(value, at)
