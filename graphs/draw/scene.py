"""Scene: a drawing as data, with the layout of the SVG, for `weft studio` and one-file pages.

A state says which templates and repeats are closed and which are open; `scene` returns one
drawing for each state that is asked for.  Positions are in points, from the upper left corner.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...specs.findings import InputError
from ..cost.flops import default_sizes
from ..ir.graph import Graph
from ..ir.traverse import find_weight, placed
from .facts import facts, foldable, param_help
from .labels import DETAIL, LONGEST, TITLE, wrapped
from .layout import lay_out_graph
from .picture import FROZEN, MASKS, Box, Folds, Frame, Picture
from .placement import Curve, PicturePlacement, Point, Rect
from .positions import positions
from .writer import FRAME_LINE, Look

_MARGIN = 8.0
"""Space around a picture."""


MOST_STATES = 30
"""Maximum number of states in a page."""
MOST_BOXES = 12_000
"""Maximum number of boxes in a state."""
MOST_COPIES = 96
"""Maximum number of copies of a repeat that a page draws one by one."""

_INDEX = re.compile(r"\.(\d[\d\-]*(?:,[\d\-]+)*(?:,\.\.,[\d\-]+)?)(?=\.|$)")
"""The number, or numbers, of copies in the path of a box."""


def scene(
    graph: Graph,
    states: Sequence[Folds] = (),
    *,
    sizes: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Return the drawing of a graph as plain data.

    Args:
        graph: a checked graph.
        states: what is open and closed; by default each template is drawn once.
        sizes: axis to its length, for shapes, FLOPs and memory; the others have a default.

    Raises:
        InputError: an axis is unknown, or a state has too many boxes.
    """
    lengths = default_sizes(graph)
    if unknown := sorted({*(sizes or {})} - {*lengths}):
        help_ = f"the axes are {', '.join(lengths)}"
        raise InputError(f"no axis '{unknown[0]}'", location="sizes", help=help_)
    lengths |= sizes or {}
    facts_by_path = facts(graph, lengths)
    unique_states = [*dict.fromkeys(states or [Folds()])]
    pictures = []
    for folds in unique_states:
        _check(graph, folds)
        pictures.append(lay_out_graph(graph, folds=folds))
    where = positions(pictures, Look(name=graph.name, tooltip=graph.name))
    drawn = {
        key_of(folds): _drawing(picture, at, facts_by_path)
        for folds, picture, at in zip(unique_states, pictures, where, strict=True)
    }
    return {
        "name": graph.name,
        "doc": graph.doc,
        "parameters": graph.parameters(),
        "flops": sum(
            facts_by_path[path]["flops"]
            for path in facts_by_path
            if "." not in path and "/" not in path
        ),
        "memory": sum(
            facts_by_path[path]["memory"]
            for path in facts_by_path
            if "." not in path and "/" not in path
        ),
        "sizes": lengths,
        "ties": [
            [[find_weight(graph.root, weight).path, weight] for weight in group]
            for group in graph.ties
        ],
        "foldable": foldable(graph),
        "facts": facts_by_path,
        "params": param_help(graph),
        "states": drawn,
    }


def key_of(folds: Folds) -> str:
    """Return the key of a state in a scene.

    >>> key_of(Folds(frozenset({"encoder"}), frozenset({"decoder"})))
    '+decoder -encoder'
    """
    marks = [*(f"+{path}" for path in sorted(folds.opened))]
    return " ".join([*marks, *(f"-{path}" for path in sorted(folds.closed))])


def read_key(key: str) -> Folds:
    """Return the state of a key."""
    words = key.split()
    return Folds(
        frozenset(word[1:] for word in words if word.startswith("-")),
        frozenset(word[1:] for word in words if word.startswith("+")),
    )


def page_states(graph: Graph) -> list[Folds]:
    """Return the states of a one-file page: all combinations, or single changes if too many.

    The first is the state at the beginning.
    """
    choices: list[list[tuple[str, str]]] = []
    for path, fold in foldable(graph).items():
        if "." in path or "/" in path:
            continue
        marks = ["", "-"] if fold["open"] else [""]
        if not fold["open"] or 1 < (fold["repeat"] or 0) <= MOST_COPIES:
            marks.append("+")
        choices.append([(mark, path) for mark in marks])
    first = [Folds()]
    count = 1
    for marks_of in choices:
        count *= len(marks_of)
    if count <= MOST_STATES:
        candidates = [_folds(some) for some in itertools.product(*choices)]
    else:
        closed = _folds(marks[1] for marks in choices if len(marks) > 1 and marks[1][0] == "-")
        singles = [_folds([choice]) for marks in choices for choice in marks if choice[0]]
        candidates = [closed, *singles][: MOST_STATES - 1]
    fitting = [folds for folds in candidates if _count(graph, folds) <= MOST_BOXES // 4]
    return [*dict.fromkeys([*first, *fitting])]


def _folds(marks: Any) -> Folds:
    chosen = list(marks)
    return Folds(
        frozenset(path for mark, path in chosen if mark == "-"),
        frozenset(path for mark, path in chosen if mark == "+"),
    )


def _count(graph: Graph, folds: Folds) -> int:
    """Return at most how many blocks a state draws."""
    foldables = foldable(graph)
    total = 0
    for path, _, _, _ in placed(graph.root):
        copies = 1
        for outer in folds.opened:
            if path.startswith(f"{outer}.") and foldables.get(outer, {}).get("repeat"):
                copies *= foldables[outer]["repeat"]
        total += copies
    return total


def _check(graph: Graph, folds: Folds) -> None:
    """Refuse states with too many boxes."""
    if (count := _count(graph, folds)) > MOST_BOXES:
        raise InputError(
            f"the drawing would have {count:,} boxes, more than {MOST_BOXES:,}",
            location=graph.source,
            help="open fewer repeats",
        )


def _drawing(
    picture: Picture, at: PicturePlacement, facts_by_path: Mapping[str, Any]
) -> dict[str, Any]:
    """Return one state: boxes, frames and wires with their positions."""
    boxes = [
        _box(name, picture.boxes[name], _edges(at.rect(name), at), facts_by_path)
        for name in picture.boxes
        if name in at.at
    ]
    wires = []
    for (source, target), types in picture.wires.items():
        for faint in (False, True):
            some = [str(type_) for type_ in types if (type_.kind in MASKS) is faint]
            curves = at.wires.get((source, target, faint))
            if some and curves:
                path, end = _curve(curves[0], at)
                wire: dict[str, Any] = {"from": source, "to": target, "types": some, "d": path}
                wire |= {"mask": True} if faint else {}
                wire |= {"end": end} if end and picture.boxes[target].shape != "join" else {}
                wires.append(wire)
    return {
        "width": round(at.width + 2 * _MARGIN, 1),
        "height": round(at.height + 2 * _MARGIN, 1),
        "boxes": boxes,
        "wires": wires,
        "frames": [*_frames(picture.root, at)],
    }


def _box(name: str, box: Box, bounds: Rect, facts_by_path: Mapping[str, Any]) -> dict[str, Any]:
    words = box.words
    small = [*([FROZEN] if box.frozen else []), *box.notes]
    detail = ", ".join(filter(None, [words.params if box.lines else words.detail, *small]))
    lines = wrapped(detail, DETAIL) if detail else []
    lines += [line for text in box.lines for line in wrapped(text, DETAIL)]
    width = LONGEST if box.shape == "text" else TITLE
    record: dict[str, Any] = {
        "id": name,
        "at": [round(value, 1) for value in bounds],
        "shape": box.shape,
        "family": words.family,
        "title": wrapped(words.title, width),
    }
    record |= {"lines": lines} if lines else {}
    record |= {"below": [wrapped(text, DETAIL) for text in words.below]} if words.below else {}
    record |= {"above": [wrapped(text, DETAIL) for text in words.above]} if words.above else {}
    record |= {"frozen": True} if box.frozen else {}
    record |= {"mask": True} if box.faint else {}
    record |= {"tip": box.tooltip} if box.shape == "text" and box.tooltip else {}
    kind, _, path = name.partition("/")
    if kind == "node" and (fact := _fact(path, facts_by_path)):
        record["fact"] = fact
    return record


def _fact(path: str, facts_by_path: Mapping[str, Any]) -> str:
    """Return the path under which the facts of a box are: copies of a repeat share theirs."""
    if path in facts_by_path:
        return path
    pieces: list[list[str]] = []
    last = 0
    for match in _INDEX.finditer(path):
        pieces.append([path[last : match.start()]])
        first = re.split(r"[,\-]", match[1])[0]
        pieces.append([f".{match[1]}", f".{first}", ".*"])
        last = match.end()
    pieces.append([path[last:]])
    for some in itertools.product(*pieces):
        if (candidate := "".join(some)) in facts_by_path:
            return candidate
    return ""


def _frames(frame: Frame, at: PicturePlacement) -> Iterator[dict[str, Any]]:
    """Yield the frames in a frame, outer ones first."""
    for inner in frame.frames:
        if inner.path in at.frames:
            lines = [(inner.pattern or inner.title).replace("_", " "), inner.note]
            yield {
                "path": inner.path,
                "node": _node_of(inner.path),
                "at": [round(value, 1) for value in _edges(at.frames[inner.path], at)],
                "copies": inner.copies,
                "lines": [line for text in lines if text for line in wrapped(text, FRAME_LINE)],
            }
        yield from _frames(inner, at)


def _node_of(path: str) -> str:
    """Return the node whose inside a frame is.

    >>> [_node_of(path) for path in ("encoder.*", "encoder.3", "a.0+", "model")]
    ['encoder', 'encoder', 'a', 'model']
    """
    return re.sub(r"\.(\*|\d+\+|\d[\d,\-.]*)$", "", path)


def _flipped(point: Point, at: PicturePlacement) -> Point:
    """Return a point from the upper left corner."""
    return point[0] + _MARGIN, at.height - point[1] + _MARGIN


def _edges(rect: Rect, at: PicturePlacement) -> Rect:
    """Return left, upper edge, width and height."""
    x, y = _flipped((rect[0], rect[3]), at)
    return x, y, rect[2] - rect[0], rect[3] - rect[1]


def _curve(curve: Curve, at: PicturePlacement) -> tuple[str, list[float]]:
    """Return the path of a wire in SVG, and the point of its arrow, if it has one."""
    points = [f"{x:.1f},{y:.1f}" for x, y in (_flipped(point, at) for point in curve.points)]
    end = [round(value, 1) for value in _flipped(curve.tip, at)] if curve.tip else []
    return f"M{points[0]}C{' '.join(points[1:])}", end
