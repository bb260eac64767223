"""Plots of a study as SVG: differences from its baseline with intervals, and validation losses."""

from __future__ import annotations

import io
import math
import re
import warnings
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler

from ....specs.escaping import html_text
from .conclusions import ranked, size_of, title_of
from .record import Record, decimals_of, primary_table
from .text import against

_COLORS = ("#2563a8", "#c2410c", "#15803d", "#7e22ce", "#b91c1c", "#0e7490", "#a16207", "#475569")
_VERDICTS = {"better": "#1e7d34", "worse": "#b42318"}
_INK, _DIM, _GRID = "#1f2733", "#5d6775", "#d9dee6"
_STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": _DIM,
    "axes.grid": True,
    "axes.labelcolor": _DIM,
    "axes.prop_cycle": cycler(linestyle=("-", "--", ":", "-.")) * cycler(color=_COLORS),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": _INK,
    "axes.titlesize": "medium",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": 8.5,
    "grid.color": _GRID,
    "svg.fonttype": "none",
    "svg.hashsalt": "weft",
    "text.parse_math": False,
    "xtick.color": _DIM,
    "ytick.color": _DIM,
}
_WIDTH, _LINE = 7.6, 0.2
"""Width of a plot, and height of one of its lines of text, in inches."""
_LONGEST = 40
"""Maximum number of letters of a label."""
_FEW = 4
"""Number of differences below which all of them are on the scale."""
_FAR = 3.0
"""A difference is off the scale if it is more than this many times the third quartile."""


@style.context(["default", _STYLE])
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
    pairs = ranked(table)
    figure = Figure((_WIDTH, 0.6 + _LINE * len(pairs)), layout="constrained")
    axes = figure.subplots()
    axes.set_title(f"difference in {table['metric']}{against(record)}, {table['split']}")
    axes.set(xlim=_bounds(pairs), ylim=(len(pairs) - 0.5, -0.5))
    axes.xaxis.set_major_formatter("{x:+g}")
    axes.axvline(0, color=_DIM, linewidth=1)
    titles = [_shortened(title_of(record, pair)) for pair in pairs]
    axes.set_yticks(range(len(pairs)), titles, color=_INK)
    axes.tick_params(left=False)
    axes.grid(visible=False, axis="y")
    for line, pair in enumerate(pairs):
        _draw_effect(axes, line, pair, size_of(pair, decimals_of(table)))
    return _svg(figure, "effects", f"differences in {table['metric']} on {table['split']}")


def _bounds(pairs: list[Record]) -> tuple[float, float]:
    """Return the scale that shows zero, and the intervals of all but very large differences."""
    ends = [_ends(pair) for pair in pairs if math.isfinite(pair["difference"])]
    reach = [max(abs(low), abs(high)) for low, high in ends]
    far = math.inf
    if len(ends) >= _FEW and any(reach):
        quartile = np.quantile([distance for distance in reach if distance], 0.75, method="lower")
        far = _FAR * float(quartile)
    shown = [
        0.0,
        *(
            end
            for pair, distance in zip(ends, reach, strict=True)
            if distance <= far
            for end in pair
        ),
    ]
    room = 0.04 * (max(shown) - min(shown)) or 1.0
    return min(shown) - room, max(shown) + room


def _ends(pair: Record) -> tuple[float, float]:
    """Return the ends of the interval of a comparison, or its difference as both ends."""
    low, high = pair["low"], pair["high"]
    if low is None or not (math.isfinite(low) and math.isfinite(high)):
        return pair["difference"], pair["difference"]
    return low, high


def _draw_effect(axes: Axes, line: int, pair: Record, size: str) -> None:
    """Draw the point and the interval of a comparison, with an arrow where the scale ends."""
    color = _VERDICTS.get(pair["verdict"], _DIM)
    beside = axes.get_yaxis_transform()
    axes.text(1.02, line, size, color=color, verticalalignment="center", transform=beside)
    if not math.isfinite(pair["difference"]):
        return
    (low, high), (first, last) = _ends(pair), axes.get_xlim()
    if first <= pair["difference"] <= last:
        axes.plot((max(low, first), min(high, last)), (line, line), "-", color=color, linewidth=1.5)
        axes.plot(pair["difference"], line, "o", color=color, markersize=5)
    if low < first:
        axes.plot(first, line, "<", color=color, clip_on=False)
    if high > last:
        axes.plot(last, line, ">", color=color, clip_on=False)


@style.context(["default", _STYLE])
def curves(record: Record) -> str:
    """Return the validation losses of all rows as SVG; `""` if there are none.

    A line is the mean over the seeds that have a value at an update.
    """
    lines = {row["name"]: _mean_curve(row) for row in record["rows"]}
    lines = {name: points for name, points in lines.items() if len(points) > 1}
    if not lines:
        return ""
    figure = Figure((_WIDTH, max(3.2, _LINE * (len(lines) + 2))), layout="constrained")
    axes = figure.subplots()
    for points in lines.values():
        axes.plot(*zip(*points, strict=True))
    axes.set_xlabel("updates")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,g}")
    names = [_shortened(name) for name in lines]
    figure.legend(axes.lines, names, loc="outside right upper", frameon=False)
    return _svg(figure, "curves", "validation loss by update")


def _mean_curve(row: Record) -> list[tuple[float, float]]:
    """Return the mean over seeds of the values at each update."""
    values: dict[int, list[float]] = {}
    for seed in row["seeds"].values():
        for update, value in seed["curve"]:
            if math.isfinite(value):
                values.setdefault(update, []).append(value)
    return [(float(update), sum(v) / len(v)) for update, v in sorted(values.items())]


def _shortened(title: str) -> str:
    return title if len(title) <= _LONGEST else f"{title[: _LONGEST - 1]}…"


def _svg(figure: Figure, name: str, label: str) -> str:
    """Return a figure as an SVG file that can be a part of a page; equal figures give equal text.

    Args:
        figure: the figure.
        name: class of the picture, for the style of the page.
        label: what it shows, for screen readers.
    """
    drawn = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # letters that only the reader's fonts have
        unnamed = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(drawn, format="svg", metadata=unnamed)
    text = re.sub(r' id="[\w.]+_\d+"', "", drawn.getvalue().decode())  # a page may have several
    head = f'<svg class="{name}" role="img" aria-label="{html_text(label)}" '
    return text[text.index("<svg") :].replace("<svg ", head, 1)
