"""Merge: nodes that one kernel computes together become one node, such as attention written out.

A block declares what its nodes merge with (`BlockType.merges`).  The weights, their names and the
types of all values stay the same; the checker, costs and drawings read the graph as written.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from ..ir.graph import BlockNode, Graph, Node, Part, RepeatNode, Scope, TemplatePart, last_result
from ..ir.traverse import model_of, visits


@dataclass(frozen=True, slots=True)
class Merged:
    """Nodes that compute others in one kernel."""

    nodes: tuple[BlockNode, ...]
    """In order; the last has the name and the outputs of the node that asked."""
    replaced: tuple[str, ...]
    """The nodes of the scope that they stand for, in order; only the last may be read by others."""


def merged(graph: Graph) -> Graph:
    """Return the graph that is computed: with merged nodes, unless its execution has none.

    Args:
        graph: a checked graph.
    """
    if not graph.execution.merges:
        return graph
    return replace(graph, root=_merged_root(graph.root, _axis(graph)))


def _axis(graph: Graph) -> str | None:
    """Return the axis along which a graph decodes, or is divided into segments."""
    return graph.step_axis or (graph.segments.axis if graph.segments is not None else None)


def merged_nodes(graph: Graph) -> list[tuple[str, tuple[str, ...]]]:
    """Return the path of each merged node of a graph, and the nodes that it stands for."""
    return [
        (visit.path, visit.node.replaced)
        for visit in visits(merged(graph).root)
        if visit.kind == "name" and isinstance(visit.node, BlockNode) and visit.node.replaced
    ]


def merged_away(graph: Graph) -> dict[str, str]:
    """Return the module of each node without one of its own to that of its merged node."""
    away: dict[str, str] = {}
    for visit in visits(merged(graph).root, "weights"):
        if visit.kind == "name" and isinstance(visit.node, BlockNode):
            above = visit.module.removesuffix(visit.node.name)
            others = (name for name in visit.node.replaced if name != visit.node.name)
            away |= {f"{above}{name}": visit.module for name in others}
    return away


def read_once(scope: Scope, value: str) -> bool:
    """Return whether exactly one wire of a scope reads a value, and none of its outputs."""
    return _readers(scope)[value] == 1


@last_result
def _readers(scope: Scope) -> Counter[str]:
    """Return how many wires and outputs of a scope read each value."""
    wires = [value for node in scope.nodes for value in node.wires.values()]
    return Counter([*wires, *scope.outputs.values()])


@last_result
def _merged_root(root: Scope, axis: str | None) -> Scope:
    """Return the root with merged nodes, also in templates; itself if there are none."""
    return _Merging(axis, {}, {}).scope(root)


@dataclass(frozen=True, slots=True)
class _Merging:
    """Scopes and parts with merged nodes, by the identities of those as written."""

    axis: str | None
    scopes: dict[int, Scope]
    parts: dict[int, Part]

    def scope(self, scope: Scope) -> Scope:
        """Return a scope with merged nodes; itself if it has none, also below."""
        if id(scope) not in self.scopes:
            nodes = tuple(map(self._node, self._merged(scope)))
            same = len(nodes) == len(scope.nodes) and all(map(_is, nodes, scope.nodes))
            self.scopes[id(scope)] = scope if same else replace(scope, nodes=nodes)
        return self.scopes[id(scope)]

    def _merged(self, scope: Scope) -> tuple[Node, ...]:
        """Return the nodes of a scope, after those of it have been merged."""
        shared = {node.shares for node in scope.nodes if node.shares}
        instead: dict[str, tuple[BlockNode, ...]] = {}
        for node in scope.nodes:
            if isinstance(node, BlockNode) and node.part.block.merges is not None:
                result: Merged | None = node.part.block.merges(node, scope, self.axis)
                if result is None or not shared.isdisjoint(result.replaced):
                    continue
                if any(other.shares for other in scope.nodes if other.name in result.replaced):
                    continue
                instead |= dict.fromkeys(result.replaced, ())
                instead[node.name] = result.nodes
        return tuple(other for node in scope.nodes for other in instead.get(node.name, (node,)))

    def _node(self, node: Node) -> Node:
        if isinstance(node, BlockNode):
            part = self._part(node.part)
            return node if part is node.part else replace(node, part=part)
        model = model_of(node)
        body = self.scope(node.body) if model is None else _merged_root(node.body, _axis(model))
        if not isinstance(node, RepeatNode):
            return node if body is node.body else replace(node, body=body)
        others = {index: self.scope(other) for index, other in node.instead.items()}
        same = body is node.body and all(map(_is, others.values(), node.instead.values()))
        return node if same else replace(node, body=body, instead=others)

    def _part(self, part: Part) -> Part:
        """Return a block whose templates in slots have merged nodes."""
        if id(part) not in self.parts:
            fill = {
                slot: self._part(filling)
                if isinstance(filling, Part)
                else _with_body(filling, self.scope(filling.body))
                for slot, filling in part.fill.items()
            }
            same = all(map(_is, fill.values(), part.fill.values()))
            self.parts[id(part)] = part if same else replace(part, fill=fill)
        return self.parts[id(part)]


def _with_body(filling: TemplatePart, body: Scope) -> TemplatePart:
    return filling if body is filling.body else replace(filling, body=body)


def _is(first: object, second: object) -> bool:
    return first is second
