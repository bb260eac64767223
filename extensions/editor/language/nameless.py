"""Digest of a graph that does not depend on the names of its nodes, templates and params.

Two specs that differ only in such names have equal digests.  The names of inputs, outputs and
axes count, because callers use them; a caller that renames one says which.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from ....graphs.ir.traverse import model_of
from ....plugin import BlockNode, Filling, Graph, Node, RepeatNode, Scope, TemplatePart
from ....specs.expressions import WORD

_ANY = "?"
"""Stands for every name that does not count."""


def nameless(graph: Graph, ignored: Collection[str] = ()) -> str:
    """Return a digest of a graph without its name, its doc and the names inside it.

    Args:
        graph: a checked spec.
        ignored: names of inputs, outputs, ports and axes that do not count either.
    """
    return _Digests(frozenset(ignored)).graph(graph)


class _Digests:
    """Digests of scopes and of their nodes; each scope is visited once."""

    def __init__(self, ignored: frozenset[str]) -> None:
        self.ignored = ignored
        self.scopes: dict[int, str] = {}
        self.nodes: dict[int, dict[str, str]] = {}
        """`id` of a scope to its nodes with their digests."""

    def graph(self, graph: Graph) -> str:
        root = self.scope(graph.root)
        spec = graph.spec
        axes = sorted([self._name(axis), kind] for axis, kind in spec.axes.items())
        ties = sorted(
            sorted(self._path(graph.root, path) for path in group) for group in graph.ties
        )
        losses = sorted([self._name(name), weight] for name, weight in graph.losses.items())
        deploy = self.nodes[id(graph.root)].get(graph.deploy or "", "")
        step = self._name(graph.step_axis or "")
        segments = graph.segments and [self._name(graph.segments.axis), graph.segments.memory]
        return _hash([root, axes, ties, losses, deploy, step, segments])

    def scope(self, scope: Scope) -> str:
        if id(scope) in self.scopes:
            return self.scopes[id(scope)]
        values = {name: f"input {self._name(name)}" for name in scope.inputs}
        alone = {node.name: self._alone(node) for node in scope.nodes}
        node_digests = self.nodes.setdefault(id(scope), {})
        for node in scope.nodes:
            wires = sorted([self._name(port), values[read]] for port, read in node.wires.items())
            shared = alone.get(node.shares, "")
            node_digests[node.name] = _hash([alone[node.name], shared, wires])
            for port in node.outputs:
                values[f"{node.name}.{port}"] = _hash([node_digests[node.name], self._name(port)])
        inputs = sorted([self._name(name), self._type(of)] for name, of in scope.inputs.items())
        outputs = sorted([self._name(port), values[read]] for port, read in scope.outputs.items())
        init = [
            [
                rule.weights,
                rule.action,
                rule.value,
                sorted(self._path(scope, p) for p in rule.paths),
            ]
            for rule in scope.init
        ]
        sorted_digests = sorted(node_digests.values())
        self.scopes[id(scope)] = _hash([inputs, outputs, init, sorted_digests])
        return self.scopes[id(scope)]

    def _alone(self, node: Node) -> str:
        """Return the digest of a node without what it reads."""
        if isinstance(node, BlockNode):
            return _hash([self._part(node.part), node.frozen])
        model = model_of(node)
        inside = self.graph(model) if model is not None else self.scope(node.body)
        more: list[Any] = [inside, node.frozen]
        if isinstance(node, RepeatNode):
            others = sorted([index, self.scope(body)] for index, body in node.instead.items())
            carry, collect = (
                sorted(map(self._name, ports)) for ports in (node.carry, node.collect)
            )
            more += [node.repeat, carry, collect, node.share, others]
        return _hash(more)

    def _part(self, part: Filling) -> str:
        if isinstance(part, TemplatePart):
            return self.scope(part.body)
        fill = sorted([slot, self._part(inner)] for slot, inner in part.fill.items())
        return _hash([part.block.key, part.params.model_dump(mode="json"), fill])

    def _path(self, scope: Scope, path: str) -> str:
        """Return the path of a parameter with the digests of nodes instead of their names."""
        if id(scope) not in self.nodes:
            self.scope(scope)
        name, _, remainder = path.partition(".")
        node = next((node for node in scope.nodes if node.name == name), None)
        if node is None:
            return path
        digest = self.nodes[id(scope)][name]
        if isinstance(node, BlockNode):
            return f"{digest}.{self._inside(node.part.fill, remainder)}"
        body = node.body
        if isinstance(node, RepeatNode) and not node.share:
            index, _, remainder = remainder.partition(".")
            body = node.instead.get(int(index), body)
            digest = f"{digest}.{index}"
        return f"{digest}.{self._path(body, remainder)}"

    def _inside(self, fill: Mapping[str, Filling], path: str) -> str:
        """Do the same for a path inside a block, which may have templates in its slots."""
        slot, _, remainder = path.partition(".")
        inner = fill.get(slot)
        if inner is None:
            return path
        if isinstance(inner, TemplatePart):
            return f"{slot}.{self._path(inner.body, remainder)}"
        return f"{slot}.{self._inside(inner.fill, remainder)}"

    def _name(self, name: str) -> str:
        return _ANY if name in self.ignored else name

    def _type(self, of: Any) -> str:
        return WORD.sub(lambda match: self._name(match[0]), str(of))


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()
