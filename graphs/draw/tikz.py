r"""TikZ: a placed picture as LaTeX, with the fonts of the document that takes it in.

`\resizebox{\columnwidth}{!}{\input{figure}}` draws it as wide as a column.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...specs.escaping import tex, unsupported
from .labels import COLORS, DETAIL, DIM, EDGE, FAINT, wrapped
from .picture import MASKS, Box, Frame, Picture
from .placement import Curve, PicturePlacement, Point
from .writer import FROZEN_EDGE, Look, frame_lines

_HEAD = r"% Needs \usepackage{tikz}; \resizebox{\columnwidth}{!}{\input{...}} makes it fit."
_LEADING = 1.2
"""Distance of two lines of text, in sizes of the font."""

Line = tuple[str, float, str]
"""A line of text, its size in points, and its color."""


def tikz(picture: Picture, look: Look, placement: PicturePlacement) -> str:
    """Return a picture as a `tikzpicture`; equal pictures give equal text.

    Args:
        picture: the picture.
        look: how it is written.
        placement: where its parts are.
    """
    body = "\n".join([*_Writer(picture, look, placement).lines()])
    return "\n".join(filter(None, (_HEAD, unsupported(body), body)))


class _Writer:
    """Writes frames, then wires, then boxes."""

    def __init__(self, picture: Picture, look: Look, placement: PicturePlacement) -> None:
        self.picture, self.look, self.placement = picture, look, placement
        self.colors: dict[str, str] = {}

    def lines(self) -> Iterator[str]:
        """Yield all lines."""
        parts = [*self._frames(self.picture.root), *self._wires(), *self._boxes()]
        parts += self._heading()
        yield r"\begin{tikzpicture}[x=1bp, y=1bp, >=latex, line width=0.9bp, line join=round,"
        yield r"  every node/.style={inner sep=0pt, outer sep=0pt, align=center, font=\sffamily}]"
        yield from (rf"\definecolor{{{name}}}{{HTML}}{{{c}}}" for c, name in self.colors.items())
        yield from parts
        yield r"\end{tikzpicture}"

    def _color(self, color: str) -> str:
        """Return the name of a color such as `#f3f3f4`."""
        digits = color.removeprefix("#").upper()
        return self.colors.setdefault(digits, f"weft{digits}")

    def _frames(self, frame: Frame) -> Iterator[str]:
        look = self.look
        for inner in frame.frames:
            west, low, east, high = self.placement.frames[inner.path]
            fill, edge = self._color(look.frame), self._color(look.frame_edge)
            yield (
                rf"\draw[fill={fill}, draw={edge}, rounded corners=7bp]"
                f" {_at((west, low))} rectangle {_at((east, high))};"
            )
            lines = frame_lines(inner, look.frame_line, look.small)
            if lines and inner.path in self.placement.labels:
                label = [(text, size, look.ink) for text, size in lines]
                yield self._text(label, self.placement.labels[inner.path], align="left")
            yield from self._frames(inner)

    def _wires(self) -> Iterator[str]:
        picture, wires = self.picture, self.placement.wires
        extra = (*picture.residuals, *picture.loops, *picture.links)
        ends = [*picture.wires, *(pair for pair in extra if pair not in picture.wires)]
        for source, target in ends:
            types = picture.wires.get((source, target), [])
            for faint in (False, True):
                texts = [str(type_) for type_ in types if (type_.kind in MASKS) is faint]
                for curve in wires.get((source, target, faint), ()):
                    yield self._wire(curve, faint=faint)
                    if self.look.typed and texts and curve.label:
                        lines = [(text, 10.0, FAINT) for text in texts]
                        yield self._text(lines, curve.label)

    def _wire(self, curve: Curve, *, faint: bool) -> str:
        color = self._color(FAINT if faint else self.look.ink)
        style = f"draw={color}" + (", dashed, line width=0.6bp" if faint else "")
        path, at = _at(curve.points[0]), curve.points[0]
        points = curve.points
        for first, second, end in zip(points[1::3], points[2::3], points[3::3], strict=True):
            if at != end and {first, second} <= {at, end}:
                path += f" -- {_at(end)}"
            elif at != end:
                path += f" .. controls {_at(first)} and {_at(second)} .. {_at(end)}"
            at = end
        path += f" -- {_at(curve.tip)}" if curve.tip else ""
        return rf"\draw[{'->, ' if curve.tip else ''}{style}] {path};"

    def _boxes(self) -> Iterator[str]:
        for name, box in self.picture.boxes.items():
            if name not in self.placement.at:
                continue
            at, size = self.placement.at[name], self.placement.size[name]
            match box.shape:
                case "join":
                    yield rf"\fill[{self._color(self.look.ink)}] {_at(at)} circle[radius=1bp];"
                case "text":
                    color, points = (FAINT, 11.0) if box.faint else (self.look.ink, 13.0)
                    lines = wrapped(box.words.title, self.look.end)
                    yield self._text([(line, points, color) for line in lines], at)
                case "sum" | "times" | "wave":
                    yield from self._circle(box, at, size[0] / 2)
                case "stack" | "carried" | "constant":
                    yield self._rectangle(at, size, "#ffffff", EDGE, dashed=box.shape == "constant")
                    lines = wrapped(box.words.title, self.look.title)
                    yield self._text([(line, 10.5, self.look.ink) for line in lines], at)
                case "box":
                    yield from self._table(box, at, size)

    def _circle(self, box: Box, at: Point, radius: float) -> Iterator[str]:
        ink, (x, y) = self._color(self.look.ink), at
        yield rf"\draw[fill=white, draw={ink}] {_at(at)} circle[radius={radius:.1f}bp];"
        if box.shape == "wave":
            r = radius * 0.6
            points = [(x - r / 2, y + r / 2), (x, y), (x + r / 2, y - r / 2), (x + r, y)]
            steps = zip(("sin", "cos", "sin", "cos"), map(_at, points), strict=True)
            path = " ".join(f"{how} {point}" for how, point in steps)
            yield rf"\draw[draw={ink}] {_at((x - r, y))} {path};"
            return
        r = radius * 0.55 * (0.7 if box.shape == "times" else 1.0)
        ends = ((-r, -r, r, r), (-r, r, r, -r))
        for a, b, c, d in ends if box.shape == "times" else ((-r, 0, r, 0), (0, -r, 0, r)):
            yield rf"\draw[draw={ink}] {_at((x + a, y + b))} -- {_at((x + c, y + d))};"

    def _table(self, box: Box, at: Point, size: Point) -> Iterator[str]:
        """Yield the rows of a box from the top: bands, and the block between them."""
        words, look = box.words, self.look
        notes = [*(["frozen"] if box.frozen else []), *box.notes]
        small = ", ".join(filter(None, (words.params if box.lines else words.detail, *notes)))
        texts = wrapped(small, DETAIL) if small else []
        texts += [line for text in box.lines for line in wrapped(text, DETAIL)]
        core = [(line, look.size, look.ink) for line in wrapped(words.title, look.title)]
        core += [(line, look.small, DIM) for line in texts]
        rows: list[tuple[list[Line], str, float]] = [(core, COLORS[words.family], 12.0)]
        for bands, row in ((words.above, 0), (words.below, len(rows) + len(words.above))):
            for text in bands:
                lines = [(line, 11.0, look.ink) for line in wrapped(text, DETAIL)]
                rows.insert(row, (lines, COLORS["norm"], 6.0))
        heights = [sum(s for _, s, _ in lines) * _LEADING + pad for lines, _, pad in rows]
        scale, top = (size[1] - 4) / sum(heights), at[1] + size[1] / 2 - 2
        edge = FROZEN_EDGE if box.frozen else look.edge
        for (lines, color, _), height in zip(rows, heights, strict=True):
            middle = (at[0], top - height * scale / 2)
            shape = (size[0] - 4, height * scale - (1 if len(rows) > 1 else 0))
            yield self._rectangle(middle, shape, color, edge, dashed=box.frozen)
            yield self._text(lines, middle)
            top -= height * scale

    def _rectangle(self, at: Point, size: Point, fill: str, edge: str, *, dashed: bool) -> str:
        (x, y), (width, height) = at, size
        corners = _at((x - width / 2, y - height / 2)), _at((x + width / 2, y + height / 2))
        style = f"fill={self._color(fill)}, draw={self._color(edge)}, rounded corners=5bp"
        style += ", dashed" if dashed else ""
        return rf"\draw[{style}] {corners[0]} rectangle {corners[1]};"

    def _text(self, lines: list[Line], at: Point, align: str = "center") -> str:
        """Return lines of text around a point."""
        texts = []
        for text, size, color in lines:
            font = rf"\fontsize{{{size:g}bp}}{{{size * _LEADING:g}bp}}\selectfont"
            texts.append(rf"{font}\color{{{self._color(color)}}}{tex(text)}")
        content = r" \\ ".join(texts)
        return rf"\node[align={align}] at {_at(at)} {{{content}}};"

    def _heading(self) -> Iterator[str]:
        if self.look.heading:
            title, *notes = self.look.heading
            lines: list[Line] = [(line, 18.0, self.look.ink) for line in wrapped(title, 30)]
            lines += [(line, 11.0, DIM) for note in notes for line in wrapped(note, 48)]
            height = sum(size for _, size, _ in lines) * _LEADING
            at = self.placement.width / 2, self.placement.height - height / 2
            yield self._text(lines, at)


def _at(point: Point) -> str:
    return f"({point[0]:.1f},{point[1]:.1f})"
