"""Ties: parameters that are one tensor must exist and have one shape."""

from __future__ import annotations

from ..specs.findings import did_you_mean, pointer
from ..specs.form import Spec
from .graph import Scope
from .params import Report

_SUGGESTED = 2_000
"""Nodes up to which every parameter is listed in search of the one that was meant."""


def check_ties(spec: Spec, root: Scope, report: Report) -> None:
    """Report tied paths that do not exist, stand twice, or have not one shape.

    Args:
        spec: the spec as written.
        root: its scope; nodes that could not be typed are missing, and paths below
            them pass.
        report: takes findings.
    """
    untyped = spec.nodes.keys() - {node.name for node in root.nodes}
    seen: set[str] = set()
    for index, group in enumerate(spec.tie):
        at = pointer("tie", index)
        if len(group) < 2:  # noqa: PLR2004 - a tie has two ends
            report(
                code="W09",
                at=at,
                problem="a group of fewer than two parameters ties nothing",
                help="name the parameters that are one tensor, or remove the group",
            )
        again = [place for place, path in enumerate(group) if path in {*seen, *group[:place]}]
        if again:
            report(
                code="W09",
                at=at + pointer(again[0]),
                problem=f"parameter '{group[again[0]]}' is tied twice",
                help="put all that is one tensor into one group",
            )
        seen.update(group)
        shapes = {}
        for place, path in enumerate(group):
            here = at + pointer(place)
            shape = root.shape_of(path)
            if shape is not None:
                shapes[path] = shape
            elif path.partition(".")[0] not in untyped:
                _report_unknown(root, path, here, report)
        if len(set(shapes.values())) > 1:
            report(
                code="T06",
                at=at,
                problem="tied parameters have different shapes",
                evidence=tuple(f"{path}  {list(shape)}" for path, shape in shapes.items()),
                help="make the sizes equal, or untie them",
            )


def _report_unknown(root: Scope, path: str, at: str, report: Report) -> None:
    copies = sum(node.repeat or 1 for node in root.nodes)
    known = root.weights() if copies <= _SUGGESTED else {}
    report(
        code="N07",
        at=at,
        problem=f"unknown parameter '{path}'",
        help=did_you_mean(path, known) or "'weft show' lists the nodes",
    )
