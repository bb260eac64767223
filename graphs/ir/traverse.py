"""Traversal: every walk over the nodes and blocks of a graph, with one notation for paths.

A path names nodes from the root, separated by dots: `decoder.3.self_attention` is a node in
the fourth copy of `decoder`, `decoder.*.self_attention` stands for that node in all copies.
A slash enters a slot: `decoder.*.self_attention/f`.  A parameter's path is that of the
state_dict, which has a dot in place of the slash.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .graph import Node, Part, Scope


@dataclass(frozen=True, slots=True)
class WeightLocation:
    """Where a weight is."""

    path: str
    """The node, such as `decoder.3.self_attention`."""
    folded: str
    """The same with every copy in one: `decoder.*.self_attention`."""
    line: str
    """The line of the outline: `folded`, and the slots below it after `/`."""


def walk(scope: Scope, prefix: str = "") -> Iterator[tuple[str, Node]]:
    """Walk every node below a scope, repeats unexpanded, as (path, node)."""
    for node in scope.nodes:
        yield prefix + node.name, node
        for path, body, _ in node.insides():
            yield from walk(body, prefix + node.name + joined(path))


def owned_parts(scope: Scope, before: str = "") -> Iterator[tuple[str, str, Part]]:
    """Walk every block of a scope, slots included, one for each set of weights.

    What stands inside a template in a slot is left out.

    Returns:
        Path as in the state_dict, path as a patch selects it, and the block in its place.
    """
    for node in scope.nodes:
        if node.part is not None:
            yield from _with_slots(node.part, before + node.name, before + node.name)
        for below, body in node.owners():
            yield from owned_parts(body, f"{before}{node.name}.{below}")


def _with_slots(part: Part, path: str, select: str) -> Iterator[tuple[str, str, Part]]:
    yield path, select, part
    for slot, inner in part.fill.items():
        if inner.body is None:
            yield from _with_slots(inner, f"{path}.{slot}", f"{select}/{slot}")


def joined(path: str) -> str:
    """Return a path below a node with what stands between them: a dot, or a slot's slash."""
    return path if path.startswith("/") else f".{path}"


def placed(
    scope: Scope, prefix: str = "", runs: int = 1, sets: int = 1
) -> Iterator[tuple[str, Node, int, int]]:
    """Walk the placed blocks below a scope, templates once.

    Args:
        scope: the root of a graph, or a scope that stands in one.
        prefix: of paths in it.
        runs: how often it runs.
        sets: how many sets of its weights there are; fewer than runs where copies share.

    Returns:
        Path as `walk` gives it, node, and how often it runs, with how many sets of weights.
    """
    for node in scope.nodes:
        path = prefix + node.name
        if node.part is not None:
            yield path, node, runs, sets
        for below, body, count in node.insides():
            times = (node.repeat or 1) if node.share else count
            yield from placed(body, path + joined(below), runs * times, sets * count)


def find_weight(scope: Scope, weight: str) -> WeightLocation:
    """Return where a weight is, given its path in the module.

    Args:
        scope: the root of a graph.
        weight: such as `decoder.3.self_attention.f.query.weight`.
    """
    parts = weight.split(".")
    path, folded = [parts.pop(0)], []
    folded.append(path[0])
    node = next(node for node in scope.nodes if node.name == path[0])
    while node.body is not None:
        body = node.body
        if node.repeat is not None and not node.share:
            index = int(parts[0])
            body = node.instead.get(index, body)
            path.append(parts.pop(0))
            folded.append(path[-1] if index in node.instead else "*")
        path.append(parts.pop(0))
        folded.append(path[-1])
        node = next(inner for inner in body.nodes if inner.name == path[-1])
    line, part = ".".join(folded), node.part
    while part is not None and parts and parts[0] in part.fill:
        line, part = f"{line}/{parts[0]}", part.fill[parts.pop(0)]
    return WeightLocation(".".join(path), ".".join(folded), line)
