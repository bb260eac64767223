"""Picture of the differences of a study from its baseline, with their intervals."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .conclusions import ranked, size_of, title_of
from .pictures import ticks
from .record import Record, decimals_of, primary_table

WIDTH = 760
"""Width of the picture in pixels."""
_LEFT, _RIGHT, _TOP, _BOTTOM, _LINE = 170, 170, 30, 24, 20
_PAIR = 150
"""Further width of a label that names both rows."""
_LONGEST = 26
"""Maximum number of letters of a label of the usual width."""
_COLORS = {"better": "#1e7d34", "worse": "#b42318"}
_SAME, _INK, _DIM, _GRID = "#5d6775", "#1f2733", "#5d6775", "#d9dee6"
_FONT = "font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif\""
_MARKS = 10
"""About how many numbers the scale has."""
_FEW = 4
"""Number of differences below which all of them are on the scale."""
_FAR = 3.0
"""A difference is off the scale if it is more than this many times the third quartile."""


@dataclass(frozen=True, slots=True)
class _Scale:
    """Values to positions across the picture."""

    low: float
    high: float
    left: int
    """Position of the lowest value."""

    def at(self, value: float) -> float:
        """Return the position of a value, at the edge if it is outside."""
        inside = min(max(value, self.low), self.high)
        wide = WIDTH - self.left - _RIGHT
        return self.left + wide * (inside - self.low) / (self.high - self.low)

    def shows(self, value: float) -> bool:
        """Return whether a value is inside."""
        return self.low <= value <= self.high


def effects(record: Record) -> str:
    """Return the differences of the first metric on the first test set as SVG, the best row first.

    A point is a difference, and its line the interval.  The scale leaves out what is much larger
    than most differences; an arrow points to it.

    Returns:
        The picture; `""` if nothing is compared.
    """
    table = primary_table(record)
    if table is None or not table["comparisons"]:
        return ""
    return "".join(_parts(record, table))


def _parts(record: Record, table: Record) -> Iterator[str]:
    pairs = ranked(table)
    left = _LEFT + _PAIR * (record["pairs"] == "all")
    scale = _scale(pairs, left)
    bottom = _TOP + _LINE * len(pairs)
    label = html.escape(f"differences in {table['metric']} on {table['split']}")
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="effects" role="img" aria-label="{label}"'
        f' viewBox="0 0 {WIDTH} {bottom + _BOTTOM}" {_FONT} font-size="12">'
        f'<rect width="{WIDTH}" height="{bottom + _BOTTOM}" fill="#ffffff"/>'
    )
    title = f"difference in {table['metric']}{against(record)}, {table['split']}"
    yield _text(WIDTH / 2, 16, title, _INK)
    for value in ticks(scale.low, scale.high, _MARKS):
        x = scale.at(value)
        color = _DIM if value == 0 else _GRID
        yield _line(x, _TOP, x, bottom, color)
        yield _text(x, bottom + 16, f"{value:+g}" if value else "0", _DIM)
    for number, pair in enumerate(pairs):
        y, size = _TOP + _LINE * (number + 0.5), size_of(pair, decimals_of(table))
        yield from _effect(pair, title_of(record, pair), size, scale, y)
    yield "</svg>\n"


def against(record: Record) -> str:
    """Return the words that name the baseline of all differences; `""` if they have several."""
    return "" if record["pairs"] == "all" else f" from {record['baseline']}"


def _scale(pairs: list[Record], left: int) -> _Scale:
    """Return the scale that shows zero, and the intervals of all but very large differences."""
    ends = [_ends(pair) for pair in pairs if math.isfinite(pair["difference"])]
    reach = [max(abs(low), abs(high)) for low, high in ends]
    far = math.inf
    if len(ends) >= _FEW and any(reach):
        quartile = np.quantile([one for one in reach if one], 0.75, method="lower")
        far = _FAR * float(quartile)
    shown = [end for end, one in zip(ends, reach, strict=True) if one <= far]
    low = min([0.0, *(low for low, _ in shown)])
    high = max([0.0, *(high for _, high in shown)])
    room = 0.04 * (high - low) or 1.0
    return _Scale(low - room, high + room, left)


def _ends(pair: Record) -> tuple[float, float]:
    """Return the ends of the interval of a comparison, or its difference as both ends."""
    low, high = pair["low"], pair["high"]
    if low is None or not (math.isfinite(low) and math.isfinite(high)):
        return pair["difference"], pair["difference"]
    return low, high


def _effect(pair: Record, title: str, size: str, scale: _Scale, y: float) -> Iterator[str]:
    """Yield the line of a comparison."""
    color = _COLORS.get(pair["verdict"], _SAME)
    longest = _LONGEST * scale.left // _LEFT
    short = title if len(title) <= longest else f"{title[: longest - 1]}…"
    yield f"<g><title>{html.escape(title)}: {html.escape(pair['verdict'])}</title>"
    yield _text(scale.left - 10, y + 4, short, _INK, "end")
    if math.isfinite(pair["difference"]):
        yield from _interval(pair, scale, y, color)
    yield _text(WIDTH - _RIGHT + 12, y + 4, size, color, "start") + "</g>"


def _interval(pair: Record, scale: _Scale, y: float, color: str) -> Iterator[str]:
    """Yield the point and the interval of a comparison, with an arrow where the scale ends."""
    low, high = _ends(pair)
    if scale.shows(pair["difference"]):
        yield _line(scale.at(low), y, scale.at(high), y, color, 2)
        yield f'<circle cx="{scale.at(pair["difference"]):.1f}" cy="{y:.1f}" r="4" fill="{color}"/>'
    for end, way in ((low, 8), (high, -8)):
        beyond = end < scale.low if way > 0 else end > scale.high
        if beyond:
            x = scale.at(end)
            points = f"{x:.1f},{y:.1f} {x + way:.1f},{y - 5:.1f} {x + way:.1f},{y + 5:.1f}"
            yield f'<polygon points="{points}" fill="{color}"/>'


def _line(x1: float, y1: float, x2: float, y2: float, color: str, width: int = 1) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{color}" stroke-width="{width}"/>'


def _text(x: float, y: float, words: str, color: str, anchor: str = "middle") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}"'
    return f"<text {place}>{html.escape(words)}</text>"
