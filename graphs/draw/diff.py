"""Diff diagram: two graphs in one picture, with added parts green, removed red, changed amber.

`diff_merge.py` decides what is drawn.  Every text passes through `plain` or `markup`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import graphviz

from ..diff.diff import Diff
from ..ir.graph import Graph
from ..ir.value_type import ValueType
from .diff_merge import Box, Frame, State, Union, unite
from .labels import DETAIL, DIM, INK, LONGEST, markup, plain, short, words_of, wrapped
from .picture import MASKS
from .render import write_picture
from .writer import FONT, FRAME_LINE, WIDTH

FILL: dict[State, str] = {
    "same": "#f3f4f6",
    "added": "#cdeccf",
    "removed": "#fbdedd",
    "changed": "#fde8ae",
}
"""Color of a box."""
LINE: dict[State, str] = {
    "same": "#b3b8c0",
    "added": "#1e7d34",
    "removed": "#c0302b",
    "changed": "#a86f00",
}
"""Color of a wire, and of the line around a box."""
PLACE: dict[State, str] = {
    "same": "#fafafb",
    "added": "#eef8ef",
    "removed": "#fdf3f2",
    "changed": "#fdf9ed",
}
"""Color of a frame."""
LEGEND: dict[State, str] = {
    "added": "added",
    "removed": "removed",
    "changed": "changed",
    "same": "as before",
}
"""Meaning of each color, as written in the picture."""
_MOST_NOTES = 6
"""Maximum number of changes that one box lists."""


def draw_diff(old: Graph, new: Graph, difference: Diff, out: Path) -> Path:
    """Write the diagram of a diff to a file; the suffix selects the format.

    Raises:
        InputError: the suffix is unknown, `dot` is not installed, or the file cannot be
            written.
    """
    return write_picture(diff_picture(old, new, difference), out)


def diff_picture(old: Graph, new: Graph, difference: Diff) -> graphviz.Digraph:
    """Return the diagram of a diff; equal diffs give equal DOT text."""
    union = unite(old, new, difference)
    dot = graphviz.Digraph(name=plain(f"{old.name} -> {new.name}"))
    look = {"fontname": FONT, "fontcolor": INK}
    dot.attr(
        "graph",
        rankdir="BT",
        label=_heading(difference),
        labelloc="t",
        bgcolor="white",
        nodesep="0.45",
        ranksep="0.42",
        pad="0.35",
        newrank="true",
        **look,
    )
    dot.attr("node", shape="plain", fontsize="12.5", **look)
    dot.attr("edge", arrowsize="0.7", **look)
    _write_ends(dot, union, "input", "min")
    _write_frame(dot, union.root)
    _write_ends(dot, union, "output", "max")
    for box, column in _columns(union).items():
        dot.node(box, group=column)
    for (source, target), sides in union.wires.items():
        state: State = "same" if len(sides) > 1 else "added" if "new" in sides else "removed"
        dot.edge(source, target, **_wire_look(source, target, state, [*sides.values()]))
    return dot


def _columns(union: Union) -> dict[str, str]:
    """Return the input above which each box is placed: that of its first wire in the new graph."""
    columns: dict[str, str] = {}
    for (source, target), sides in union.wires.items():
        types = sides.get("new", [])
        if target not in columns and any(type_.kind not in MASKS for type_ in types):
            columns[target] = columns.setdefault(source, source)
    return columns


def _wire_look(
    source: str, target: str, state: State, sides: list[list[ValueType]]
) -> dict[str, str]:
    """Return the style of a wire: masks thin, removed wires dashed."""
    thin = all(type_.kind in MASKS for types in sides for type_ in types)
    width = {"same": 1.1, "added": 2.0, "removed": 1.6, "changed": 1.1}[state]
    look = {"color": LINE[state], "penwidth": f"{width * (0.6 if thin else 1):.2f}"}
    look["style"] = "dashed" if state == "removed" or thin else "solid"
    if thin or state == "removed":
        return {**look, "weight": "0", **({"arrowsize": "0.5"} if thin else {})}
    frames = [end.removeprefix("node/").rpartition(".")[0] for end in (source, target)]
    return {**look, "weight": "20" if frames[0] == frames[1] else "4"}


def _write_ends(dot: graphviz.Digraph, union: Union, what: str, rank: str) -> None:
    """Write the inputs or the outputs in one row."""
    ends = {box: end for box, end in union.ends.items() if box.startswith(f"{what}/")}
    with dot.subgraph() as row:
        row.attr(rank=rank)
        for left, right in itertools.pairwise(ends):
            row.edge(left, right, style="invis")
        for box, (word, type_, state, notes) in ends.items():
            text = f'<font color="{_ink(state)}">{markup(short(word.replace("_", " ")))}</font>'
            row.node(
                box,
                label=f"<{text}{_notes(notes)}>",
                shape="plaintext",
                margin="0.08,0.03",
                tooltip=plain(f"{what} {word}: {type_}"),
            )


def _write_frame(dot: graphviz.Digraph, frame: Frame) -> None:
    """Write the boxes of a frame, and the frames in it."""
    for box in frame.boxes:
        path = box.name.removeprefix("node/")
        dot.node(box.name, label=_box(box), tooltip=plain(f"{path}: {box.part.block.key}"))
    for number, inner in enumerate(frame.frames):
        with dot.subgraph(name=f"cluster_{number}_{inner.state}_{inner.path}") as sub:
            lines = wrapped(inner.title.replace("_", " "), FRAME_LINE)
            title = '<br align="left"/>'.join(map(markup, lines))
            text = f'<font point-size="10.5" color="{_ink(inner.state)}">{title}</font>'
            if inner.copies is not None:
                text = f'<font point-size="14">× {inner.copies}</font><br align="left"/>{text}'
            if inner.notes:
                text += _notes(inner.notes, align=' align="left"')
            sub.attr(
                label=f'<{text}<br align="left"/>>',
                style="rounded,filled" + (",dashed" if inner.state == "removed" else ""),
                fillcolor=PLACE[inner.state],
                color=LINE[inner.state],
                penwidth="1.2" if inner.state == "same" else "1.8",
                margin="18",
                labeljust="l",
                labelloc="b",
                tooltip=plain(inner.path),
            )
            _write_frame(sub, inner)


def _box(box: Box) -> str:
    """Return the box of a node: its name, its block, and the changes in it."""
    words = words_of(box.part)
    name = box.name.rpartition("/")[2].rpartition(".")[2].replace("_", " ")
    text = f'<font color="{_ink(box.state)}">{markup(short(name))}</font>'
    for line in wrapped(", ".join(filter(None, (words.title, words.detail))), DETAIL):
        text += f'<br/><font point-size="10" color="{DIM}">{markup(line)}</font>'
    text += _notes(box.notes)
    style = "rounded,dashed" if box.state == "removed" else "rounded"
    border = "1" if box.state == "same" else "2"
    return (
        f'<<table border="0" cellborder="{border}" cellspacing="2" color="{LINE[box.state]}">'
        f'<tr><td style="{style}" width="{WIDTH}" cellpadding="6" bgcolor="{FILL[box.state]}">'
        f"{text}</td></tr></table>>"
    )


def _notes(notes: Iterable[str], align: str = "") -> str:
    """Return the changes, one line for each."""
    lines = [*notes]
    if len(lines) > _MOST_NOTES:
        lines = [*lines[: _MOST_NOTES - 1], f"and {len(lines) - _MOST_NOTES + 1} more"]
    color = LINE["changed"]
    return "".join(
        f'<br{align}/><font point-size="10.5" color="{color}">{markup(text)}</font>'
        for line in lines
        for text in wrapped(line, LONGEST)
    )


def _ink(state: State) -> str:
    """Return the text color of a box."""
    return DIM if state == "same" else INK


def _heading(difference: Diff) -> str:
    """Return the title: both names, the sizes, and a legend of the colors."""
    old, new = difference.parameters
    names = " → ".join(markup(short(name)) for name in difference.names)
    legend = "".join(
        f'<td bgcolor="{FILL[state]}" color="{LINE[state]}" border="1" width="76" '
        f'style="rounded{",dashed" if state == "removed" else ""}" cellpadding="4">'
        f'<font point-size="10.5">{word}</font></td>'
        for state, word in LEGEND.items()
    )
    sizes = f"{old:,} → {new:,} parameters" if old != new else f"{new:,} parameters, as before"
    return (
        '<<table border="0" cellspacing="6">'
        f'<tr><td><font point-size="19"><b>{names}</b></font></td></tr>'
        f'<tr><td><font point-size="11" color="{DIM}">{sizes}</font></td></tr>'
        f'<tr><td><table border="0" cellspacing="6"><tr>{legend}</tr></table></td></tr>'
        '<tr><td height="8"></td></tr></table>>'
    )
