"""Writer: a picture as DOT, for graphviz.

Inputs are at the bottom and values flow upwards.  Every text passes through `quoted` or `markup`.
"""

from __future__ import annotations

import itertools
import textwrap
from dataclasses import dataclass

import graphviz

from .grid import grid_positions
from .labels import (
    COLORS,
    DETAIL,
    DIM,
    EDGE,
    FAINT,
    FRAME,
    FRAME_EDGE,
    INK,
    LONGEST,
    TITLE,
    markup,
    quoted,
    wrapped,
)
from .picture import FROZEN, MASKS, Box, Frame, Picture, Side, frame_of
from .placement import PicturePlacement

FONT = "Helvetica,Arial,sans-serif"
FROZEN_EDGE = "#5b8db8"
"""Color of the line around what does not train."""
FRAME_LINES = 2
"""Number of lines of a frame's label that a picture of every copy has space for."""
FRAME_LINE = 14
"""Number of characters in a line of a frame's label, which is left of the wire in its middle."""
MANY = 200
"""Number of boxes from which on a picture is placed here, and not by dot."""
WIDTH = 132
"""Minimum width of a box in points, so that a stack has straight sides."""


_CIRCLES = {"sum": ("+", "0.22"), "times": ("×", "0.22"), "wave": ("∿", "0.34")}
"""Shape of a circle to its sign and its width in inches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How a picture is written."""

    name: str
    tooltip: str
    heading: tuple[str, ...] = ()
    """The title, and the smaller lines below it."""
    typed: bool = False
    """Whether wires have labels with their types."""
    ink: str = INK
    """Color of text and wires."""
    edge: str = EDGE
    """Color of the lines around boxes."""
    frame: str = FRAME
    frame_edge: str = FRAME_EDGE
    width: int = WIDTH
    """Minimum width of a box in points."""
    title: int = TITLE
    """Number of characters in a line of a box."""
    end: int = LONGEST
    """Number of characters in a line of an input or an output."""
    frame_line: int = FRAME_LINE
    """Number of characters in a line of a frame's label."""
    size: float = 12.5
    """Font size of titles in points."""
    small: float = 10
    """Font size of the smaller lines of a box."""
    ranksep: str = "0.36"
    cornered: bool = False
    """Whether wires get corners once the boxes are placed."""


def write(
    picture: Picture, look: Look, placement: PicturePlacement | None = None
) -> graphviz.Digraph:
    """Return the picture as DOT; equal pictures give equal text.

    Args:
        picture: the picture.
        look: how it is written.
        placement: where everything is; without it, dot places small pictures.
    """
    if placement is None and is_large(picture):
        placement = grid_positions(picture, FRAME_LINES)
    return _Writer(picture, look, placement).write()


class _Writer:
    """Writes the boxes of a picture, then its wires."""

    def __init__(self, picture: Picture, look: Look, placement: PicturePlacement | None) -> None:
        self.picture, self.look, self.placement = picture, look, placement
        engine = "dot" if placement is None else "neato"
        self.dot = graphviz.Digraph(name=quoted(look.name), engine=engine)
        self.stacks = picture.stacks()

    def write(self) -> graphviz.Digraph:
        """Write everything."""
        dot, picture, look = self.dot, self.picture, self.look
        dot.attr(
            "graph",
            rankdir="BT",
            **({"label": self._heading(), "labelloc": "t"} if look.heading else {}),
            tooltip=quoted(look.tooltip),
            fontname=FONT,
            fontcolor=look.ink,
            bgcolor="white",
            nodesep="0.3",
            ranksep=look.ranksep,
            pad="0.15",
            remincross="true",
            **({"mclimit": "3"} if picture.unfolded else {"newrank": "true"}),
            **self._bounds(),
        )
        dot.attr("node", shape="plain", fontname=FONT, fontsize=f"{look.size}", fontcolor=look.ink)
        dot.attr(
            "edge",
            color=look.ink,
            fontname=FONT,
            fontsize="10",
            fontcolor=FAINT,
            arrowhead="normal",
            arrowsize="0.65",
            dir="forward",
            penwidth="1.1",
        )
        self._write_row(picture.inputs, "min")
        self._write_frame(dot, picture.root)
        order = {box: index for index, box in enumerate(picture.inputs)}
        ends = sorted(picture.outputs, key=lambda box: order.get(picture.stack_of(box), 0))
        self._write_row(ends, "max")
        for boxes in picture.rows:
            with dot.subgraph() as row:
                row.attr(rank="same")
                for previous, right in itertools.pairwise(boxes):
                    row.edge(previous, right, style="invis")
        skips = picture.skips() if look.cornered and self.placement is None else []
        for (source, target), types in picture.wires.items():
            if (source, target) in skips:
                continue
            # Masks get a line of their own, besides the other values between the same boxes.
            masks = [type_ for type_ in types if type_.kind in MASKS]
            unmasked = [type_ for type_ in types if type_.kind not in MASKS]
            for drawn in filter(None, (unmasked, masks)):
                self._write_wire(source, target, [*map(str, drawn)], faint=drawn is masks)
        around = (*skips, *picture.residuals) if self.placement is None else ()
        for source, target in around:
            side = "w" if self._side(target) == "left" else "e"
            dot.edge(f"{source}:{side}", f"{target}:{side}", weight="0")
        if self.placement is not None:
            for name, _, _ in picture.beside:
                self._write_box(dot, name)
            for source, target in (*picture.residuals, *picture.loops, *picture.links):
                self._write_wire(source, target, [], faint=False)
        return dot

    def _bounds(self) -> dict[str, str]:
        """Return the size of a picture that is placed, and where its title is."""
        if self.placement is None:
            return {}
        width, height = self.placement.width, self.placement.height
        top = height + 16 * len(self.look.heading) + 20
        middle = f"{width / 2:.1f},{(height + top) / 2:.1f}"
        return {"bb": f"0,0,{width:.1f},{top:.1f}", "lp": middle}

    def _side(self, box: str) -> Side:
        """Return on which side of a stack its residual paths are drawn: away from the others."""
        return self.picture.side_of(box, self.stacks)

    def _write_wire(self, source: str, target: str, types: list[str], *, faint: bool) -> None:
        """Write one wire, or the branches of one that is placed."""
        label = "\n".join(f" {type_} " for type_ in types) if self.look.typed else ""
        style = {"label": quoted(label)} if label else {}
        target_box = self.picture.boxes[target]
        if target_box.shape == "join":
            style["arrowhead"] = "none"
        if faint:
            style |= {"style": "dashed", "color": FAINT, "penwidth": "0.7"}
            style |= {"arrowsize": "0.55", "weight": "0"}
        else:
            if self.picture.boxes[source].shape in ("box", "stack"):
                style["tailport"] = "n"
            style["weight"] = self._weight(source, target)
            if self.look.cornered and self.picture.crosses(source, target):
                side = "e" if self._side(target) == "left" else "w"
                style |= {"constraint": "false", "headport": side}
        if self.placement is None:
            self.dot.edge(source, target, **style)
            return
        for curve in self.placement.wires.get((source, target, faint), ()):
            ends = style if curve.tip else style | {"arrowhead": "none"}
            ends = ends | {"lp": "{:.1f},{:.1f}".format(*curve.label)} if curve.label else ends
            self.dot.edge(source, target, **ends, pos=curve.text())
            style.pop("label", None)

    def _weight(self, source: str, target: str) -> str:
        """Return the graphviz weight of a wire: how strongly it pulls its ends together.

        Wires within a frame are the strongest.  Wires between stacks of expanded copies have no
        weight; otherwise one stack would be drawn above the other instead of side by side.
        """
        if self.picture.boxes[target].shape == "stack":
            return "1"
        frames = [frame_of(end) for end in (source, target)]
        if frames[0] == frames[1]:
            return "20"
        apart = all(frames) and frames[0].split(".")[0] != frames[1].split(".")[0]
        return "0" if self.picture.unfolded and apart else "4"

    def _write_row(self, ends: list[str], rank: str) -> None:
        """Write the inputs or the outputs in one row."""
        thick = [end for end in ends if not self.picture.boxes[end].faint]
        with self.dot.subgraph() as row:
            row.attr(rank=rank)
            for previous, right in itertools.pairwise(thick):
                row.edge(previous, right, style="invis")
            for end in ends:
                self._write_box(row, end)

    def _write_frame(self, dot: graphviz.Digraph, frame: Frame) -> None:
        """Write the boxes of a frame, and the frames in it."""
        for name in frame.boxes:
            self._write_box(dot, name)
        look = self.look
        for inner in frame.frames:
            with dot.subgraph(name=f"cluster_{inner.path}") as sub:
                label = frame_label(inner, look.frame_line, look.small)
                sub.attr(
                    label=label,
                    labelloc="b",
                    style="rounded,filled",
                    fillcolor=look.frame,
                    color=look.frame_edge,
                    penwidth="1.2",
                    margin="22" if self.picture.residuals else "17",
                    labeljust="l",
                    tooltip=quoted(inner.path),
                    **self._edges(inner),
                )
                self._write_frame(sub, inner)

    def _edges(self, frame: Frame) -> dict[str, str]:
        """Return the edges of a frame that is placed, and where its label is."""
        if self.placement is None or frame.path not in self.placement.frames:
            return {}
        edges = {"bb": ",".join(f"{value:.1f}" for value in self.placement.frames[frame.path])}
        if frame.path in self.placement.labels:
            x, y = self.placement.labels[frame.path]
            edges["lp"] = f"{x:.1f},{y:.1f}"
        return edges

    def _write_box(self, dot: graphviz.Digraph, name: str) -> None:
        """Write one box."""
        box, look = self.picture.boxes[name], self.look
        more = {"tooltip": quoted(box.tooltip)} if box.tooltip else {}
        if not self.picture.unfolded and name in self.picture.columns:
            more["group"] = self.picture.columns[name]
        if self.placement is not None:
            x, y = self.placement.at[name]
            more["pos"] = f"{x:.1f},{y:.1f}"
        title = "\\n".join(map(quoted, wrapped(box.words.title, look.title)))
        match box.shape:
            case "join":
                dot.node(name, label="", shape="point", width="0.02", color=look.ink, **more)
            case "text":
                faint = {"fontsize": "11", "fontcolor": FAINT} if box.faint else {"fontsize": "13"}
                title = "\\n".join(map(quoted, wrapped(box.words.title, look.end)))
                dot.node(name, label=title, shape="plaintext", margin="0.06,0.03", **faint, **more)
            case "stack" | "carried" | "constant":
                dashed = ",dashed" if box.shape == "constant" else ""
                dot.node(
                    name,
                    label=title,
                    fontsize="10.5",
                    margin="0.1,0.04",
                    width="0.4",
                    height="0.3",
                    shape="box",
                    style=f"rounded,filled{dashed}",
                    fillcolor="white",
                    color=EDGE,
                    **more,
                )
            case "sum" | "times" | "wave":
                sign, width = _CIRCLES[box.shape]
                dot.node(
                    name,
                    label=sign,
                    shape="circle",
                    style="filled",
                    fillcolor="white",
                    fixedsize="true",
                    width=width,
                    height=width,
                    **more,
                )
            case "box":
                dot.node(name, label=self._table(box), **more)

    def _table(self, box: Box) -> str:
        """Return the box of a block, with bands around it; a frozen one has a dashed line."""
        words, look = box.words, self.look
        notes = [*([FROZEN] if box.frozen else []), *box.notes]
        small = (words.params if box.lines else words.detail, *notes)
        lines = wrapped(", ".join(filter(None, small)), DETAIL) if any(small) else []
        lines += [line for text in box.lines for line in wrapped(text, DETAIL)]
        core = "<br/>".join(map(markup, wrapped(words.title, look.title)))
        for line in lines:
            core += f'<br/><font point-size="{look.small:g}" color="{DIM}">{markup(line)}</font>'
        rows = [
            *(self._band(text) for text in reversed(words.above)),
            self._row(core, COLORS[words.family], 5),
            *(self._band(text) for text in reversed(words.below)),
        ]
        border = f'border="1" style="rounded,dashed" color="{FROZEN_EDGE}"'
        border = border if box.frozen else f'border="0" color="{look.edge}"'
        return f'<<table {border} cellborder="1" cellspacing="1">{"".join(rows)}</table>>'

    def _band(self, text: str) -> str:
        """Return the band of a wrapper, thinner than the row of the wrapped block."""
        lines = "<br/>".join(map(markup, wrapped(text, DETAIL)))
        return self._row(f'<font point-size="11">{lines}</font>', COLORS["norm"], 2)

    def _row(self, label: str, color: str, padding: int) -> str:
        """Return one rounded row of a box."""
        width = self.look.width
        look = f'style="rounded" width="{width}" bgcolor="{color}" cellpadding="{padding}"'
        return f"<tr><td {look}>{label}</td></tr>"

    def _heading(self) -> str:
        """Return the title and the smaller lines below it."""
        title, *notes = self.look.heading
        lines = [
            f'<font point-size="18"><b>{markup(line)}</b></font>' for line in wrapped(title, 30)
        ]
        lines += [
            f'<font point-size="11" color="{DIM}">{markup(line)}</font>'
            for note in notes
            for line in textwrap.wrap(note, LONGEST)
        ]
        return f"<{'<br/>'.join(lines)}<br/> >"


def is_large(picture: Picture) -> bool:
    """Return whether a picture is placed by `grid.py`: dot would take too long."""
    return len(picture.boxes) >= MANY


def frame_lines(frame: Frame, width: int, small: float = 10) -> list[tuple[str, float]]:
    """Return the lines of a frame's label: the number of copies, its template, and a note.

    Returns:
        Each line with the size of its font.
    """
    if not frame.title and not frame.pattern and frame.copies is None:
        return []
    title = frame.pattern or frame.title.replace("_", " ")
    texts = [(title, small + 0.5), (frame.note, small)]
    if frame.copies is not None:
        texts.insert(0, (f"× {frame.copies}:" if frame.pattern else f"× {frame.copies}", 14))
    return [(line, size) for text, size in texts if text for line in wrapped(text, width)]


def frame_label(frame: Frame, width: int, small: float = 10) -> str:
    """Return the text of a frame."""
    lines = [
        f'<font point-size="{size:g}">{markup(line)}</font><br align="left"/>'
        for line, size in frame_lines(frame, width, small)
    ]
    return f"<{''.join(lines)}>" if lines else ""
