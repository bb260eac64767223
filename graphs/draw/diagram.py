"""Diagram: draw a graph in the style of Figure 1 of "Attention Is All You Need".

Inputs are at the bottom and values flow upwards; each template is a frame, drawn once and marked
with its number of copies.  `layout.py` decides what is drawn, and `labels.py` the text of boxes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import graphviz

from ...specs.findings import InputError
from ..ir.graph import Graph, Part
from ..ir.traverse import find_weight, holds_model, placed, scopes
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
from .layout import FROZEN, MASKS, Closed, Frame, Picture, fold, unfold
from .render import check_suffix, write_picture

Form = Literal["folded", "typed", "expanded"]
"""`folded`: each template once; `typed`: the same with types on wires; `expanded`: every copy."""

FONT = "Helvetica,Arial,sans-serif"
FROZEN_EDGE = "#5b8db8"
"""Color of the line around what does not train."""
WIDTH = 174
"""Minimum width of a box in points, so that a stack has straight sides."""
MOST_BOXES = 1_000
"""Maximum number of boxes in a picture of every copy."""
MOST_NAMED = 4
"""Maximum number of boxes with a shared weight that the heading names."""


def diagram(graph: Graph, form: Form = "folded") -> graphviz.Digraph:
    """Return the diagram of a graph; equal graphs give equal DOT text.

    Args:
        graph: the graph to draw.
        form: `folded` draws each template once, `typed` also writes the type on
            each wire, `expanded` draws every copy.
    """
    if form == "expanded":
        _refuse_many(graph)
    picture = unfold(graph) if form == "expanded" else fold(graph)
    return _write(picture, graph, typed=form == "typed")


def _refuse_many(graph: Graph) -> None:
    """Check that a picture of every copy has a bounded number of boxes.

    Raises:
        InputError: there are too many; dot would take minutes.
    """
    count = sum(runs for _, _, runs, _ in placed(graph.root))
    if count > MOST_BOXES:
        raise InputError(
            f"the expanded picture would have {count:,} boxes, more than {MOST_BOXES:,}",
            place=graph.source,
            help="draw the folded or typed form, or fewer copies, as with --set layers=4",
        )


def draw(graph: Graph, out: Path, form: Form = "folded") -> Path:
    """Write the diagram of a graph to a file; the suffix selects the format.

    Raises:
        InputError: the suffix is unknown, `dot` is not installed, or the file cannot be
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
    _write_ends(dot, "output", graph.outputs, "max", _loss_notes(graph))
    columns = {} if picture.unfolded else _columns(picture)
    for box, column in columns.items():
        dot.node(box, group=column)
    for (source, target), types in picture.wires.items():
        # Masks get a line of their own, besides the other values between the same boxes.
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
    """Return the graphviz weight of a wire: how strongly it pulls its ends together.

    Wires within a frame are the strongest.  Wires between stacks of expanded copies have no
    weight; otherwise one stack would be drawn above the other instead of side by side.
    """
    frames = [end.removeprefix("node/").rpartition(".")[0] for end in (source, target)]
    if frames[0] == frames[1]:
        return "20"
    apart = all(frames) and frames[0].split(".")[0] != frames[1].split(".")[0]
    return "0" if picture.unfolded and apart else "4"


def _columns(picture: Picture) -> dict[str, str]:
    """Return the input above which each box is placed: that of its first wire."""
    columns: dict[str, str] = {}
    for (source, target), types in picture.wires.items():
        if target not in columns and not _thin(types):
            columns[target] = columns.setdefault(source, source)
    return columns


def _thin(types: Iterable[ValueType]) -> bool:
    """Return whether a wire carries only masks and similar values, and is drawn thin."""
    return all(type_.kind in MASKS for type_ in types)


def _write_ends(
    dot: graphviz.Digraph,
    what: str,
    types: Mapping[str, ValueType],
    rank: str,
    notes: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write the inputs or the outputs in one row."""
    with dot.subgraph() as row:
        row.attr(rank=rank)
        thick = [f"{what}/{name}" for name, type_ in types.items() if type_.kind not in MASKS]
        for left, right in itertools.pairwise(thick):
            row.edge(left, right, style="invis")
        for name, type_ in types.items():
            thin = type_.kind in MASKS
            row.node(
                f"{what}/{name}",
                label=plain(short(name.replace("_", " ") + notes.get(name, ""))),
                shape="plaintext",
                margin="0.08,0.03",
                tooltip=plain(f"{what} {name}: {type_}"),
                fontsize="11" if thin else "13",
                fontcolor=FAINT if thin else INK,
            )


def _loss_notes(graph: Graph) -> dict[str, str]:
    """Return the weights of the losses of an objective, to be written next to their names."""
    if not any(holds_model(node) for scope in scopes(graph.root) for node in scope.nodes):
        return {}
    return {name: f" × {weight:g}" for name, weight in graph.losses.items()}


def _write_frame(
    dot: graphviz.Digraph, picture: Picture, frame: Frame, shared: Mapping[str, list[str]]
) -> None:
    """Write the boxes of a frame, and the frames in it."""
    for box in frame.boxes:
        part, path = picture.boxes[box], box.removeprefix("node/")
        frozen = box in picture.frozen
        notes = [*([FROZEN] if frozen else []), *picture.notes.get(box, [])]
        if isinstance(part, Closed):
            notes = [part.detail, *notes]
            label = _table([_row(_two_lines(part.title, notes), COLORS[part.family], 12)], frozen)
            dot.node(box, label=label, tooltip=plain(f"{path}: {part.detail}"))
            continue
        notes += shared.get(path, [])
        label = _box(part, notes, frozen=frozen)
        dot.node(box, label=label, tooltip=plain(f"{path}: {part.block.key}"))
    for stack, words in frame.stacks.items():
        look = {"shape": "box", "style": "rounded,filled", "fillcolor": "white", "color": EDGE}
        dot.node(stack, label=plain(short(words)), fontsize="11", margin="0.12,0.05", **look)
    for inner in frame.frames:
        with dot.subgraph(name=f"cluster_{inner.path}") as sub:
            text = f'<font point-size="11.5">{markup(short(inner.title.replace("_", " ")))}</font>'
            if inner.copies is not None:
                text += f'<br align="left"/><font point-size="15">× {inner.copies}</font>'
            if inner.note:
                text += f'<br align="left"/><font point-size="10">{markup(inner.note)}</font>'
            sub.attr(
                label=f'<{text}<br align="left"/>>',
                style="rounded,filled",
                fillcolor=FRAME,
                color=FRAME_EDGE,
                penwidth="1.2",
                margin="14",
                labeljust="l",
                tooltip=plain(inner.path),
            )
            _write_frame(sub, picture, inner, shared)


def _box(part: Part, notes: Iterable[str], *, frozen: bool = False) -> str:
    """Return the box of a block, with the bands of its wrapper around it."""
    words = words_of(part)
    rows = [
        *(_band(text) for text in reversed(words.above)),
        _row(_two_lines(words.title, (words.detail, *notes)), COLORS[words.family], 6),
        *(_band(text) for text in reversed(words.below)),
    ]
    return _table(rows, frozen)


def _two_lines(title: str, details: Iterable[str]) -> str:
    """Return the text of a row: its title, and the details on a smaller line."""
    label, detail = markup(short(title)), ", ".join(filter(None, details))
    if detail:
        label += f'<br/><font point-size="10" color="{DIM}">{markup(short(detail))}</font>'
    return label


def _table(rows: Iterable[str], frozen: bool) -> str:  # noqa: FBT001 - read at both calls
    """Return the rows of a box; what is frozen has a dashed line around it."""
    border = f'border="1" style="rounded,dashed" color="{FROZEN_EDGE}"' if frozen else 'border="0"'
    edge = "" if frozen else f' color="{EDGE}"'
    table = f'<table {border} cellborder="1" cellspacing="2"{edge}>'
    return f"<{table}{''.join(rows)}</table>>"


def _band(text: str) -> str:
    """Return the band of a wrapper, thinner than the row of the wrapped block."""
    return _row(f'<font point-size="11">{markup(short(text))}</font>', COLORS["norm"], 2)


def _row(label: str, color: str, padding: int) -> str:
    """Return one rounded row of a box."""
    look = f'style="rounded" width="{WIDTH}" bgcolor="{color}" cellpadding="{padding}"'
    return f"<tr><td {look}>{label}</td></tr>"


def _shared(graph: Graph) -> dict[str, list[str]]:
    """Return the notes on boxes with tied weights, by their paths in every form."""
    notes: dict[str, list[str]] = {}
    for index, group in enumerate(graph.ties, start=1):
        words = "shared weight" + (f" {index}" if len(graph.ties) > 1 else "")
        for weight in group:
            location = find_weight(graph.root, weight)
            for path in (location.path, location.folded):
                known = notes.setdefault(path, [])
                if words not in known:
                    known.append(words)
    return notes


def _heading(graph: Graph) -> str:
    """Return the title: name, size, and the nodes that share one weight."""
    notes = [f"{count_words(graph.parameters())} parameters"]
    if len(graph.ties) == 1:
        nodes = [*dict.fromkeys(find_weight(graph.root, name).path for name in graph.ties[0])]
        if 1 < len(nodes) <= MOST_NAMED:
            notes.append(f"{', '.join(nodes[:-1])} and {nodes[-1]} share one weight")
    lines = [
        f'<font point-size="20"><b>{markup(short(graph.name))}</b></font>',
        *(f'<font point-size="11" color="{DIM}">{markup(note)}</font>' for note in notes),
    ]
    return f"<{'<br/>'.join(lines)}>"
