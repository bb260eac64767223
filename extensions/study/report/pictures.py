"""Pictures of a study: what each row changes in the graph, and the curves of the trainings."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from graphviz import Digraph

from ....graphs.draw.diff import diff_picture
from ....graphs.draw.render import svg_of
from ....specs.files import write_beside
from ....specs.findings import InputError
from ..planning.identity import digest_of
from ..planning.plan import Plan, difference
from ..planning.planned import Planned
from .record import Record

COLORS = ("#2563a8", "#c2410c", "#15803d", "#7e22ce", "#b91c1c", "#0e7490", "#a16207", "#475569")
WIDTH, HEIGHT = 720, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 150, 12, 34
_TICKS = 5
_LINE = 12
"""Height of a line of the legend."""
DASHES = ("", "5 3", "1 3", "9 3 2 3")
"""Dashes of the first curves in all colors, of the next ones, and so on."""


def write_pictures(plan: Plan, out: Path) -> list[str]:
    """Draw the difference of each row from the baseline into the folder of the study.

    A picture that exists already is not drawn again.  That of a row whose graph is no longer
    another one is removed.

    Returns:
        Why rows that have a difference have no picture.
    """
    failed = dict[str, list[str]]()
    for row in plan.rows:
        path, picture = _path(out, row.name), _difference(plan, row)
        if picture is None:
            path.unlink(missing_ok=True)
            continue
        digest = digest_of(picture.source, 16)
        if path.is_file() and digest in path.read_text(encoding="utf-8")[:60]:
            continue
        if drawn := _drawn(picture, row.name, failed):
            write_beside(path, f"<!-- {digest} -->{drawn}".encode(), "picture")
    return _reasons(failed)


def pictures(plan: Plan) -> tuple[dict[str, str], list[str]]:
    """Draw the difference of each row from the baseline.

    Returns:
        The name of each row whose graph is another one to its picture as SVG; and why rows that
        have a difference have no picture.
    """
    found, failed = dict[str, str](), dict[str, list[str]]()
    for row in plan.rows:
        picture = _difference(plan, row)
        if picture is not None and (drawn := _drawn(picture, row.name, failed)):
            found[row.name] = drawn
    return found, _reasons(failed)


def _difference(plan: Plan, row: Planned) -> Digraph | None:
    """Return the diagram of what a row changes in the graph; None if that is nothing."""
    old, new, found = difference(plan.baseline, row)
    if not found.changes:
        return None
    return diff_picture(old, new, replace(found, names=(plan.baseline.name, row.name)))


def _drawn(picture: Digraph, name: str, failed: dict[str, list[str]]) -> str:
    """Return a diagram as SVG; `""` if this fails, and add the row to those that have failed."""
    try:
        return svg_of(picture)
    except InputError as error:
        failed.setdefault(error.problem, []).append(name)
        return ""


def _reasons(failed: Mapping[str, Sequence[str]]) -> list[str]:
    """Return why rows have no picture, from problem to rows, one line for each problem."""
    reasons = []
    for problem, names in failed.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        reasons.append(f"no picture of the row '{names[0]}'{more}: {problem}")
    return reasons


def _path(out: Path, name: str) -> Path:
    """Return the file of the picture of a row in the folder of a study."""
    return out / "pictures" / f"{digest_of(name, 16)}.svg"


def picture_of(out: Path, name: str) -> str:
    """Return the picture of a row as SVG; `""` if there is none."""
    path = _path(out, name)
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def curves(record: Record) -> str:
    """Return the validation losses of all rows as SVG; `""` if there are none.

    A line is the mean over the seeds that have a value at an update.
    """
    lines = {row["name"]: _mean_curve(row) for row in record["rows"]}
    lines = {name: points for name, points in lines.items() if len(points) > 1}
    if not lines:
        return ""
    points = [point for each in lines.values() for point in each]
    most = max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    high = high if high > low else low + 1.0
    height = max(HEIGHT, _TOP + _LINE * len(lines) + _BOTTOM)
    wide, tall = WIDTH - _LEFT - _RIGHT, height - _TOP - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        return _LEFT + wide * x / most, _TOP + tall * (high - y) / (high - low)

    label = 'role="img" aria-label="validation loss by update"'
    parts = [f'<svg class="curves" viewBox="0 0 {WIDTH} {height}" {label}>']
    places = ticks(low, high)
    step = places[1] - places[0] if len(places) > 1 else 1.0
    digits = max(0, -math.floor(math.log10(step) + 1e-6))
    for value in places:
        _, y = place(0, value)
        parts.append(f'<line x1="{_LEFT}" x2="{_LEFT + wide}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:,.{digits}f}</text>'
        )
    for value in ticks(0, most):
        x, _ = place(value, low)
        parts.append(
            f'<text x="{x:.1f}" y="{_TOP + tall + 16}" text-anchor="middle">{value:,.0f}</text>'
        )
    parts.append(
        f'<text x="{_LEFT + wide / 2}" y="{height - 3}" text-anchor="middle">updates</text>'
    )
    for number, (name, each) in enumerate(lines.items()):
        color = COLORS[number % len(COLORS)]
        dashes = DASHES[number // len(COLORS) % len(DASHES)]
        dash = f' stroke-dasharray="{dashes}"' if dashes else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in each))
        title = f"<title>{html.escape(name)}</title>"
        parts.append(f'<polyline points="{path}" stroke="{color}"{dash}>{title}</polyline>')
        y = _TOP + _LINE * number + 8
        x = _LEFT + wide + 8
        parts.append(
            f'<line x1="{x}" x2="{x + 18}" y1="{y - 4}" y2="{y - 4}" style="stroke:{color}"{dash}/>'
            f'<text x="{x + 22}" y="{y}" style="fill:{color}">'
            f"{html.escape(name[:24])}</text>"
        )
    return "".join((*parts, "</svg>"))


def _mean_curve(row: Record) -> list[tuple[float, float]]:
    """Return the mean over seeds of the values at each update."""
    found: dict[int, list[float]] = {}
    for one in row["seeds"].values():
        for update, value in one["curve"]:
            if math.isfinite(value):
                found.setdefault(update, []).append(value)
    return [(float(update), sum(v) / len(v)) for update, v in sorted(found.items())]


def ticks(low: float, high: float, most: int = _TICKS) -> Sequence[float]:
    """Return about `most` round numbers between two bounds."""
    raw = (high - low) / most
    unit = 10 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
    step = next(unit * one for one in (1, 2, 5, 10) if unit * one >= raw)
    first = math.ceil(low / step)
    return [step * number for number in range(first, math.floor(high / step) + 1)]
