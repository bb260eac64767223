"""Figures of a study: differences from its baseline, losses, tuned values, sizes of ladders."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

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
    "pdf.fonttype": 42,
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
_WIDE = 5.0
"""Ratio of the largest to the least tuned value from which the axis is logarithmic."""
_FEW = 4
"""Number of differences below which all of them are on the scale."""
_FAR = 3.0
"""A difference is off the scale if it is more than this many times the third quartile."""


def effects(record: Record) -> Figure | None:
    """Return the differences of the first metric on the first test set, the best row first.

    A point is a difference, and its line the interval.  The scale leaves out what is much larger
    than most differences; an arrow points to it.

    Returns:
        The figure; None if nothing is compared.
    """
    table = primary_table(record)
    if table is None or not table["comparisons"]:
        return None
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
    figure.set_label(f"differences in {table['metric']} on {table['split']}")
    return figure


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


def curves(record: Record) -> Figure | None:
    """Return the validation losses of all rows; None if there are none.

    A line is the mean over the seeds that have a value at an update.
    """
    lines = {row["name"]: _mean_curve(row) for row in record["rows"]}
    lines = {name: points for name, points in lines.items() if len(points) > 1}
    if not lines:
        return None
    figure = Figure((_WIDTH, max(3.2, _LINE * (len(lines) + 2))), layout="constrained")
    axes = figure.subplots()
    for points in lines.values():
        axes.plot(*zip(*points, strict=True))
    axes.set_xlabel("updates")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,g}")
    names = [_shortened(name) for name in lines]
    figure.legend(axes.lines, names, loc="outside right upper", frameon=False)
    figure.set_label("validation loss by update")
    return figure


def _mean_curve(row: Record) -> list[tuple[float, float]]:
    """Return the mean over seeds of the values at each update."""
    values: dict[int, list[float]] = {}
    for seed in row["seeds"].values():
        for update, value in seed["curve"]:
            if math.isfinite(value):
                values.setdefault(update, []).append(value)
    return [(float(update), sum(v) / len(v)) for update, v in sorted(values.items())]


def tuning(record: Record) -> Figure | None:
    """Return the value of each row against each number that is tuned; None without such a number.

    If several settings are tuned, a point is the best of the combinations with its value.  The
    chosen value is a filled circle.
    """
    part = record["tuning"]
    names = _numbers(part) if part else []
    if not names or part["metric"] is None:
        return None
    better = max if part["higher_is_better"] else min
    rows = part["rows"]
    height = max(3.0, _LINE * (len(rows) + 2))
    figure = Figure((_WIDTH, height), layout="constrained")
    panels = figure.subplots(1, len(names), squeeze=False, sharey=True)[0]
    for axes, name in zip(panels, names, strict=True):
        for row in rows.values():
            points: dict[float, list[float]] = {}
            for point in row["points"]:
                if point["value"] is not None and name in point["values"]:
                    points.setdefault(point["values"][name], []).append(point["value"])
            drawn = sorted((at, better(values)) for at, values in points.items())
            [curve] = axes.plot(*(zip(*drawn, strict=True) if drawn else ([], [])), marker="o")
            curve.set_markerfacecolor("white")
            chosen = [(at, value) for at, value in drawn if at == row["chosen"].get(name)]
            for at, value in chosen:
                axes.plot(at, value, "o", color=curve.get_color())
        _scale(axes, [point["values"][name] for row in rows.values() for point in row["points"]])
        axes.set_xlabel(name)
    panels[0].set_ylabel(f"{part['metric']}, validation")
    lines = [line for line in panels[0].lines if line.get_markerfacecolor() == "white"]
    figure.legend(lines, [*map(_shortened, rows)], loc="outside right upper", frameon=False)
    figure.set_label(f"{part['metric']} by tuned value")
    return figure


def _numbers(part: Record) -> list[str]:
    """Return the settings of a tuning whose values are numbers in all rows."""
    points = [point["values"] for row in part["rows"].values() for point in row["points"]]
    return [
        name
        for name in points[0]
        if all(isinstance(values.get(name), int | float) for values in points)
    ]


def _scale(axes: Axes, values: Sequence[float]) -> None:
    """Make an axis logarithmic if its values are, as rates often are."""
    if min(values) > 0 and max(values) >= _WIDE * min(values):
        axes.set_xscale("log")


def ladders(record: Record) -> Figure | None:
    """Return the loss of each size with the fitted line and its interval, for each ladder."""
    parts = {name: ladder for name, ladder in record["ladders"].items() if ladder["points"]}
    if not parts:
        return None
    figure = Figure((_WIDTH, 3.2), layout="constrained")
    panels = figure.subplots(1, len(parts), squeeze=False)[0]
    for axes, (name, ladder) in zip(panels, parts.items(), strict=True):
        for point in ladder["points"]:
            sizes = [point["size"]] * len(point["values"])
            axes.plot(sizes, point["values"], "o", color=_COLORS[0], alpha=0.5, markersize=4)
        if ladder["fit"] is not None:
            at, middle, low, high = zip(*ladder["fit"]["band"], strict=True)
            axes.plot(at, middle, "-", color=_COLORS[0])
            axes.fill_between(at, low, high, color=_COLORS[0], alpha=0.15, linewidth=0)
        axes.set_xscale("log")
        if all(value > 0 for point in ladder["points"] for value in point["values"]):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter("{x:g}")
        axes.set(title=_shortened(name), ylabel=f"{ladder['metric']}, validation")
        axes.set_xlabel(ladder["against"].replace("_", " ").replace("flops", "FLOPs"))
    figure.set_label("loss by size")
    return figure


_FIGURES: dict[str, Callable[[Record], Figure | None]] = {
    "effects": effects,
    "curves": curves,
    "tuning": tuning,
    "ladders": ladders,
}


@style.context(["default", _STYLE])
def figures(
    record: Record, form: Literal["svg", "pdf"], names: Iterable[str] = (*_FIGURES,)
) -> dict[str, bytes]:
    """Return the figures of a report as files, by name; those that have nothing to show are absent.

    Args:
        record: record of the study with its labels.
        form: `svg`, which can also be a part of a page, or `pdf`.
        names: names of the figures: `effects`, `curves`, `tuning` and `ladders`.
    """
    drawn = {}
    for name in names:
        figure = _FIGURES[name](record)
        if figure is not None:
            drawn[name] = _svg(figure, name).encode() if form == "svg" else _pdf(figure)
    return drawn


def _shortened(title: str) -> str:
    return title if len(title) <= _LONGEST else f"{title[: _LONGEST - 1]}…"


def _pdf(figure: Figure) -> bytes:
    """Return a figure as a PDF file with its fonts; equal figures give equal bytes."""
    drawn = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # letters that the font does not have
        figure.savefig(drawn, format="pdf", metadata={"CreationDate": None})
    return drawn.getvalue()


def _svg(figure: Figure, name: str) -> str:
    """Return a figure as an SVG file that can be a part of a page; equal figures give equal text.

    Args:
        figure: the figure, whose label is what it shows, for screen readers.
        name: class of the picture, for the style of the page.
    """
    label = str(figure.get_label())
    drawn = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # letters that only the reader's fonts have
        unnamed = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(drawn, format="svg", metadata=unnamed)
    text = re.sub(r' id="[\w.]+_\d+"', "", drawn.getvalue().decode())  # a page may have several
    head = f'<svg class="{name}" role="img" aria-label="{html_text(label)}" '
    return text[text.index("<svg") :].replace("<svg ", head, 1)
