"""Picture of the differences of a study from its baseline, with their intervals."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .conclusions import ranked, title_of
from .pictures import ticks
from .record import Record, primary_table

WIDTH = 760
"""Width of the picture in pixels."""
_LEFT, _RIGHT, _TOP, _BOTTOM, _LINE = 170, 170, 30, 24, 20
_COLORS = {"better": "#1e7d34", "worse": "#b42318"}
_SAME, _INK, _DIM, _GRID = "#5d6775", "#1f2733", "#5d6775", "#d9dee6"
_FONT = "font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif\""
_MARKS = 10
"""About how many numbers the scale has."""
_FEW = 4
"""Number of differences below which all of them are on the scale."""
_FAR = 3.0
"""How much farther than three quarters of the others a difference is that the scale leaves out."""


@dataclass(frozen=True, slots=True)
class _Scale:
    """Values to positions across the picture."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Return the position of a value, at the edge if it is outside."""
        inside = min(max(value, self.low), self.high)
        wide = WIDTH - _LEFT - _RIGHT
        return _LEFT + wide * (inside - self.low) / (self.high - self.low)

    def shows(self, value: float) -> bool:
        """Return whether a value is inside."""
        return self.low <= value <= self.high


def effects(record: Record) -> str:
    """Return the differences of the first metric on the first test set as SVG, the best row first.

    A point is a difference, and its line the interval.  The scale leaves out differences that are
    much larger than most; an arrow points to them.

    Returns:
        The picture; `""` if nothing is compared.
    """
    table = primary_table(record)
    if table is None or not table["comparisons"]:
        return ""
    return "".join(_parts(record, table))


def _parts(record: Record, table: Record) -> Iterator[str]:
    pairs = ranked(table)
    scale = _scale(pairs)
    bottom = _TOP + _LINE * len(pairs)
    label = html.escape(f"differences in {table['metric']} on {table['split']}")
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="effects" role="img" aria-label="{label}"'
        f' viewBox="0 0 {WIDTH} {bottom + _BOTTOM}" {_FONT} font-size="12">'
        f'<rect width="{WIDTH}" height="{bottom + _BOTTOM}" fill="#ffffff"/>'
    )
    against = "" if record["pairs"] == "all" else f" from {record['baseline']}"
    yield _text(WIDTH / 2, 16, f"difference in {table['metric']}{against}, {table['split']}", _INK)
    for value in ticks(scale.low, scale.high, _MARKS):
        x = scale.at(value)
        color = _DIM if value == 0 else _GRID
        yield _line(x, _TOP, x, bottom, color)
        yield _text(x, bottom + 16, f"{value:+g}" if value else "0", _DIM)
    for number, pair in enumerate(pairs):
        yield from _effect(pair, title_of(record, pair), scale, _TOP + _LINE * (number + 0.5))
    yield "</svg>\n"


def _scale(pairs: list[Record]) -> _Scale:
    """Return the scale that shows zero, and the intervals of all but very large differences."""
    ends = [(_low(pair), _high(pair)) for pair in pairs]
    reach = [max(abs(low), abs(high)) for low, high in ends]
    few = len(pairs) < _FEW
    most = max(reach) if few else _FAR * float(np.quantile(reach, 0.75, method="lower"))
    shown = [end for end, far in zip(ends, reach, strict=True) if far <= most]
    low = min(0.0, *(low for low, _ in shown))
    high = max(0.0, *(high for _, high in shown))
    room = 0.04 * (high - low) or 1.0
    return _Scale(low - room, high + room)


def _low(pair: Record) -> float:
    return float(pair["difference"] if pair["low"] is None else pair["low"])


def _high(pair: Record) -> float:
    return float(pair["difference"] if pair["high"] is None else pair["high"])


def _effect(pair: Record, title: str, scale: _Scale, y: float) -> Iterator[str]:
    """Yield the line of a comparison."""
    color = _COLORS.get(pair["verdict"], _SAME)
    short = title if len(title) <= 26 else f"{title[:25]}…"  # noqa: PLR2004
    yield f"<g><title>{html.escape(title)}: {html.escape(pair['verdict'])}</title>"
    yield _text(_LEFT - 10, y + 4, short, _INK, "end")
    if scale.shows(pair["difference"]):
        yield _line(scale.at(_low(pair)), y, scale.at(_high(pair)), y, color, 2)
        yield f'<circle cx="{scale.at(pair["difference"]):.1f}" cy="{y:.1f}" r="4" fill="{color}"/>'
    else:
        x, way = scale.at(pair["difference"]), 8 if pair["difference"] < 0 else -8
        points = f"{x:.1f},{y:.1f} {x + way:.1f},{y - 5:.1f} {x + way:.1f},{y + 5:.1f}"
        yield f'<polygon points="{points}" fill="{color}"/>'
    words = f"{pair['difference']:+.2f}"
    if pair["low"] is not None:
        words += f" [{pair['low']:+.2f}, {pair['high']:+.2f}]"
    yield _text(WIDTH - _RIGHT + 12, y + 4, words, color, "start") + "</g>"


def _line(x1: float, y1: float, x2: float, y2: float, color: str, width: int = 1) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{color}" stroke-width="{width}"/>'


def _text(x: float, y: float, words: str, color: str, anchor: str = "middle") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}"'
    return f"<text {place}>{html.escape(words)}</text>"
