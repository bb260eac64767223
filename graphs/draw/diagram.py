"""Diagram: a graph as a picture, after Figure 1 of "Attention Is All You Need".

Inputs stand at the bottom and the flow goes up; each template is a frame, drawn
once and marked with how often it repeats.  What is drawn is in
`diagram_picture.py`, what boxes say in `diagram_words.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import graphviz

from ..ir.graph import Graph, Part
from ..ir.traverse import find_weight
from ..ir.value_type import ValueType
from .labels import (
    COLORS,
    DIM,
    EDGE,
    FAINT,
    FRAME,
    FRAME_EDGE,
    INK,
    count_words,
    markup,
    plain,
    short,
    words_of,
)
from .layout import MASKS, Frame, Picture, fold, unfold
from .render import check_suffix, write_picture

Form = Literal["folded", "typed", "expanded"]
"""Templates once; the same with types on the wires; every copy."""

FONT = "Helvetica,Arial,sans-serif"
WIDTH = 174
"""Points that a box is wide at least, so that a stack has straight sides."""
MOST_NAMED = 4
"""Boxes that the heading names when they share a weight."""


def diagram(graph: Graph, form: Form = "folded") -> graphviz.Digraph:
    """Return the picture of a graph; equal graphs give equal text.

    Args:
        graph: what to draw.
        form: `folded` draws each template once, `typed` also writes the type on
            each wire, `expanded` draws every copy.
    """
    picture = unfold(graph) if form == "expanded" else fold(graph)
    return _write(picture, graph, typed=form == "typed")


def draw(graph: Graph, out: Path, form: Form = "folded") -> Path:
    """Write the picture of a graph; the suffix of the file says how.

    Raises:
        InputError: unknown suffix, no `dot` on this machine, or the file cannot be
            written.
    """
    check_suffix(Path(out))
    return write_picture(diagram(graph, form), Path(out))


def _write(picture: Picture, graph: Graph, *, typed: bool) -> graphviz.Digraph:
    """Return the picture as DOT."""
    dot = graphviz.Digraph(name=plain(graph.name))
    dot.attr(
        "graph",
        rankdir="BT",
        label=_heading(graph),
        labelloc="t",
        tooltip=plain(graph.doc or graph.name),
        fontname=FONT,
        fontcolor=INK,
        bgcolor="white",
        nodesep="0.5",
        ranksep="0.42",
        pad="0.35",
        remincross="true",
        **({"mclimit": "3"} if picture.unfolded else {"newrank": "true"}),
    )
    dot.attr("node", shape="plain", fontname=FONT, fontsize="12.5", fontcolor=INK)
    dot.attr(
        "edge",
        color=INK,
        fontname=FONT,
        fontsize="10",
        fontcolor=FAINT,
        arrowsize="0.7",
        penwidth="1.1",
    )
    _write_ends(dot, "input", graph.inputs, "min")
    shared = _shared(graph)
    _write_frame(dot, picture, picture.root, shared)
    _write_ends(dot, "output", graph.outputs, "max")
    columns = {} if picture.unfolded else _columns(picture)
    for box, column in columns.items():
        dot.node(box, group=column)
    for (source, target), types in picture.wires.items():
        # A mask has a line of its own beside what it goes with.
        masks = [type_ for type_ in types if type_.kind in MASKS]
        rest = [type_ for type_ in types if type_.kind not in MASKS]
        for drawn in filter(None, (rest, masks)):
            thin = drawn is masks
            label = "\n".join(f" {type_} " for type_ in drawn) if typed else ""
            style = {"label": plain(label)} if label else {}
            if thin:
                style |= {"style": "dashed", "color": FAINT, "penwidth": "0.7"}
                style |= {"arrowsize": "0.55", "weight": "0"}
            else:
                style |= {"tailport": "n", "weight": _weight(picture, source, target)}
            dot.edge(source, target, **style)
    return dot


def _weight(picture: Picture, source: str, target: str) -> str:
    """Return how hard a wire pulls its ends together.

    A frame holds together before anything else.  Stacks of copies that are drawn
    side by side pull nothing, or one would stand on top of the other.
    """
    frames = [end.removeprefix("node/").rpartition(".")[0] for end in (source, target)]
    if frames[0] == frames[1]:
        return "20"
    apart = all(frames) and frames[0].split(".")[0] != frames[1].split(".")[0]
    return "0" if picture.unfolded and apart else "4"


def _columns(picture: Picture) -> dict[str, str]:
    """Return the input over which each box stands: that of its first wire."""
    columns: dict[str, str] = {}
    for (source, target), types in picture.wires.items():
        if target not in columns and not _thin(types):
            columns[target] = columns.setdefault(source, source)
    return columns


def _thin(types: Iterable[ValueType]) -> bool:
    """Whether a wire only steers."""
    return all(type_.kind in MASKS for type_ in types)


def _write_ends(
    dot: graphviz.Digraph, what: str, types: Mapping[str, ValueType], rank: str
) -> None:
    """Write the inputs or the outputs, in one row."""
    with dot.subgraph() as row:
        row.attr(rank=rank)
        thick = [f"{what}/{name}" for name, type_ in types.items() if type_.kind not in MASKS]
        for left, right in itertools.pairwise(thick):
            row.edge(left, right, style="invis")
        for name, type_ in types.items():
            thin = type_.kind in MASKS
            row.node(
                f"{what}/{name}",
                label=plain(short(name.replace("_", " "))),
                shape="plaintext",
                margin="0.08,0.03",
                tooltip=plain(f"{what} {name}: {type_}"),
                fontsize="11" if thin else "13",
                fontcolor=FAINT if thin else INK,
            )


def _write_frame(
    dot: graphviz.Digraph, picture: Picture, frame: Frame, shared: Mapping[str, list[str]]
) -> None:
    """Write the boxes of a frame, and the frames in it."""
    for box in frame.boxes:
        part, path = picture.boxes[box], box.removeprefix("node/")
        notes = [*picture.notes.get(box, []), *shared.get(path, [])]
        dot.node(box, label=_box(part, notes), tooltip=plain(f"{path}: {part.block.key}"))
    for stack, words in frame.stacks.items():
        look = {"shape": "box", "style": "rounded,filled", "fillcolor": "white", "color": EDGE}
        dot.node(stack, label=plain(short(words)), fontsize="11", margin="0.12,0.05", **look)
    for inner in frame.frames:
        with dot.subgraph(name=f"cluster_{inner.path}") as sub:
            said = f'<font point-size="11.5">{markup(short(inner.title.replace("_", " ")))}</font>'
            if inner.copies is not None:
                said += f'<br align="left"/><font point-size="15">× {inner.copies}</font>'
            if inner.said:
                said += f'<br align="left"/><font point-size="10">{markup(inner.said)}</font>'
            sub.attr(
                label=f'<{said}<br align="left"/>>',
                style="rounded,filled",
                fillcolor=FRAME,
                color=FRAME_EDGE,
                penwidth="1.2",
                margin="14",
                labeljust="l",
                tooltip=plain(inner.path),
            )
            _write_frame(sub, picture, inner, shared)


def _box(part: Part, notes: Iterable[str]) -> str:
    """Return the box of a block: bands of its wrapper around what it computes."""
    words = words_of(part)
    detail = ", ".join(filter(None, (words.detail, *notes)))
    said = markup(short(words.title))
    if detail:
        said += f'<br/><font point-size="10" color="{DIM}">{markup(short(detail))}</font>'
    rows = [
        *(_band(text) for text in reversed(words.above)),
        _row(said, COLORS[words.family], 6),
        *(_band(text) for text in reversed(words.below)),
    ]
    table = f'<table border="0" cellborder="1" cellspacing="2" color="{EDGE}">'
    return f"<{table}{''.join(rows)}</table>>"


def _band(text: str) -> str:
    """Return the row of a wrapper, thinner than what it wraps."""
    said = f'<font point-size="11">{markup(short(text))}</font>'
    return _row(said, COLORS["norm"], 2)


def _row(said: str, color: str, padding: int) -> str:
    """Return one rounded row of a box."""
    look = f'style="rounded" width="{WIDTH}" bgcolor="{color}" cellpadding="{padding}"'
    return f"<tr><td {look}>{said}</td></tr>"


def _shared(graph: Graph) -> dict[str, list[str]]:
    """Return what the box of a tied weight says, by its path in every form."""
    said: dict[str, list[str]] = {}
    for index, group in enumerate(graph.ties, start=1):
        words = "shared weight" + (f" {index}" if len(graph.ties) > 1 else "")
        for weight in group:
            held = find_weight(graph.root, weight)
            for path in (held.path, held.folded):
                known = said.setdefault(path, [])
                if words not in known:
                    known.append(words)
    return said


def _heading(graph: Graph) -> str:
    """Return the title: name, size, and what is one tensor."""
    notes = [f"{count_words(graph.parameters())} parameters"]
    if len(graph.ties) == 1:
        holders = [*dict.fromkeys(find_weight(graph.root, name).path for name in graph.ties[0])]
        if 1 < len(holders) <= MOST_NAMED:
            notes.append(f"{', '.join(holders[:-1])} and {holders[-1]} share one weight")
    lines = [
        f'<font point-size="20"><b>{markup(short(graph.name))}</b></font>',
        *(f'<font point-size="11" color="{DIM}">{markup(note)}</font>' for note in notes),
    ]
    return f"<{'<br/>'.join(lines)}>"
