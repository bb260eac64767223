"""Ties: check that tied parameters exist and have the same shape."""

from __future__ import annotations

from collections.abc import Iterator

from ...specs.findings import did_you_mean, pointer, respelled
from ...specs.form import Spec
from ..ir.graph import BlockNode, RepeatNode, Scope
from .params import Report

_SUGGESTED = 2_000
"""Maximum number of nodes for which all parameters are searched for a suggestion."""
EACH = "*"
"""In a path, stands for the number of every copy of a repeat."""


def written_out(spec: Spec, root: Scope) -> tuple[tuple[str, ...], ...]:
    """Return the groups of tied parameters, with `*` expanded to every copy.

    Args:
        spec: the spec as written, with valid ties.
        root: its scope.
    """
    groups = (tuple(copy for path in group for copy in _copies(root, path)) for group in spec.tie)
    return tuple(group for group in groups if len(group) > 1)


def _copies(scope: Scope, path: str) -> Iterator[str]:
    """Yield the paths that a path with `*` stands for; an unknown path is yielded unchanged."""
    name, _, rest = path.partition(".")
    node = next((node for node in scope.nodes if node.name == name), None)
    if EACH not in path.split(".") or node is None or isinstance(node, BlockNode):
        yield path
    elif not isinstance(node, RepeatNode) or node.share:
        yield from (f"{name}.{inner}" for inner in _copies(node.body, rest))
    else:
        number, _, rest = rest.partition(".")
        for index, body in node.copies():
            if number in (EACH, str(index)):
                yield from (f"{name}.{index}.{inner}" for inner in _copies(body, rest))


def check_ties(spec: Spec, root: Scope, report: Report) -> None:
    """Report tied paths that do not exist, occur twice, or have different shapes.

    Args:
        spec: the spec as written.
        root: its scope; nodes that could not be typed are missing, and paths below
            them are not checked.
        report: called with findings.
    """
    untyped = spec.nodes.keys() - {node.name for node in root.nodes}
    seen: set[str] = set()
    for index, group in enumerate(spec.tie):
        at = pointer("tie", index)
        members = [
            (place, copy) for place, path in enumerate(group) for copy in _copies(root, path)
        ]
        single = len(group) < 2 and EACH not in "".join(group)  # noqa: PLR2004 - a tie has two ends
        if single:
            report(
                code="W09",
                at=at,
                problem="a group of fewer than two parameters ties nothing",
                help="name the parameters that share a tensor, or remove the group",
            )
        twice = None
        for place, path in members:
            twice = twice or ((place, path) if path in seen else None)
            seen.add(path)
        if twice:
            report(
                code="W09",
                at=at + pointer(twice[0]),
                problem=f"parameter '{twice[1]}' is tied twice",
                help="put all parameters that share a tensor into one group",
            )
        shapes: dict[str, tuple[int, ...]] = {}
        unknown: set[int] = set()
        for place, path in members:
            here = at + pointer(place)
            shape = root.shape_of(path)
            if shape is not None:
                shapes[path] = shape
            elif path.partition(".")[0] not in untyped and place not in unknown:
                unknown.add(place)
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
    copies = sum(node.repeat if isinstance(node, RepeatNode) else 1 for node in root.nodes)
    known = root.weights() if copies <= _SUGGESTED else {}
    report(
        code="N07",
        at=at,
        problem=f"unknown parameter '{path}'",
        help=did_you_mean(path, known) or "'weft show' lists the nodes",
        fix=respelled(at, path, known),
    )
