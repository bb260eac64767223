"""Selection: resolve a selection to modules of a scope.

The notation is that of patches (`specs/patches/selections.py`).  Here it is matched against the
expanded graph, so that single copies and the blocks in slots have paths of their own.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...specs.findings import InputError, did_you_mean
from ...specs.patches.selections import Segment, SelectError, glob, read_selection
from .graph import Part, RepeatNode, Scope
from .traverse import Piece, path_of, visits


@dataclass(frozen=True, slots=True)
class _Place:
    """Something that a selection can name."""

    pieces: tuple[Piece, ...]
    modules: tuple[str, ...]
    """Paths of its modules: one, or all copies of a repeat."""
    record: Mapping[str, Any]
    """Record to which predicates in brackets are applied."""

    @property
    def text(self) -> str:
        """The path with `*` for copy numbers."""
        words = ((kind, "*" if kind == "index" else word) for kind, word in self.pieces)
        return path_of(tuple(words))


def chosen_in(scope: Scope, text: str, *, location: str = "") -> tuple[str, ...]:
    """Return the paths of the modules that a selection names, outermost ones only.

    Args:
        scope: the root of a checked graph, or the inside of a template.
        text: such as `encoder.*`, `decoder.0-2.feed_forward/f` or `**[use=attention@1]`.
        location: where the selection is written, for the message.

    Raises:
        InputError: it cannot be parsed or selects nothing; the help names the nearest path.
    """
    try:
        selection = read_selection(text)
    except SelectError as error:
        raise InputError(f"{error}: '{text}'", location=location, help=error.help) from error
    if selection.target == "spec":
        raise InputError(
            "'/' selects the complete model",
            location=location,
            help="select parts, such as 'encoder.*'",
        )
    places = list(_places(scope))
    if selection.target == "templates":
        name = selection.segments[0].text
        matches = [site for site in places if glob(name, str(site.record.get("block", "")))]
    else:
        matches = [site for site in places if _fits(selection.segments, site.pieces)]
    selected = [site for site in matches if selection.holds(site.record)]
    if not selected:
        texts = list(dict.fromkeys(site.text for site in places))
        bare = selection.path
        problem = f"'{text}' selects nothing in '{scope.name}'"
        if matches:
            problem += f": '{bare}' exists, but does not match the brackets"
        raise InputError(problem, location=location, help=did_you_mean(bare, texts))
    paths = {path for site in selected for path in site.modules}
    return tuple(path for path in sorted(paths) if paths.isdisjoint(_around(path)))


def named_paths(text: str, paths: Iterable[str]) -> list[str]:
    """Return those of some paths of weights that a selection without brackets names.

    Args:
        text: such as `**.bias` or `decoder.0-2.**.weight`; where it has brackets, or cannot be
            parsed, it names none.
        paths: paths such as `decoder.0.self_attention.f.query.bias`.
    """
    try:
        selection = read_selection(text)
    except SelectError:
        return []
    if selection.target != "nodes" or selection.predicates:
        return []
    segments = tuple(
        replace(segment, kind="name") if segment.kind == "slot" else segment
        for segment in selection.segments
    )
    return [path for path in paths if _fits(segments, _pieces(path))]


def _pieces(path: str) -> tuple[Piece, ...]:
    """Return the pieces of the path of a weight, in which slots look like names."""
    return tuple(("index" if word.isdecimal() else "name", word) for word in path.split("."))


def _around(path: str) -> Iterator[str]:
    """Yield the paths of the modules that contain a module."""
    for match in re.finditer(r"\.", path):
        yield path[: match.start()]


def _places(scope: Scope) -> Iterator[_Place]:
    """Yield everything that a selection can name, including every copy."""
    for visit in visits(scope, "each"):
        modules: tuple[str, ...] = (visit.module,)
        if visit.kind == "name" and isinstance(visit.node, RepeatNode) and not visit.node.share:
            modules = tuple(f"{visit.module}.{index}" for index in range(visit.node.repeat))
        if isinstance(visit.part, Part):
            record = {"use": visit.part.key, "params": visit.part.params.model_dump(mode="json")}
        else:
            record = _template(visit.body) if visit.body is not None else {}
        yield _Place(visit.pieces, modules, record)


def _template(scope: Scope) -> dict[str, Any]:
    return {"use": scope.name, "block": scope.name}


def _fits(segments: tuple[Segment, ...], pieces: tuple[Piece, ...]) -> bool:
    """Return whether a path matches the segments of a selection."""

    @functools.cache
    def from_(segment: int, piece: int) -> bool:
        if segment == len(segments):
            return piece == len(pieces)
        pattern = segments[segment]
        if pattern.kind == "any":
            more = piece < len(pieces) and from_(segment, piece + 1)
            return more or from_(segment + 1, piece)
        if piece == len(pieces):
            return False
        kind, word = pieces[piece]
        number = int(word) if kind == "index" else 0
        return pattern.fits(kind, word, number) and from_(segment + 1, piece + 1)

    return from_(0, 0)
