"""Pictures of a study: what each row changes in the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from graphviz import Digraph

from ....graphs.draw.diff import diff_picture
from ....graphs.draw.render import svg_of
from ....plugin import write_beside
from ....specs.findings import InputError
from ..planning.identity import digest_of
from ..planning.plan import Plan, difference
from ..planning.planned import Planned


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
    drawings, failed = dict[str, str](), dict[str, list[str]]()
    for row in plan.rows:
        picture = _difference(plan, row)
        if picture is not None and (drawn := _drawn(picture, row.name, failed)):
            drawings[row.name] = drawn
    return drawings, _reasons(failed)


def _difference(plan: Plan, row: Planned) -> Digraph | None:
    """Return the diagram of what a row changes in the graph; None if that is nothing."""
    old, new, graph_diff = difference(plan.baseline, row)
    if not graph_diff.changes:
        return None
    return diff_picture(old, new, replace(graph_diff, names=(plan.baseline.name, row.name)))


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
