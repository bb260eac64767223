"""Which nodes a run selects, and which of their weights it freezes."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import replace

from ...specs.findings import InputError, did_you_mean
from ..ir.graph import BlockNode, Graph, Node, RepeatNode, Scope
from ..ir.selection import chosen_in
from ..ir.traverse import fixed_weights, model_of, visits


def chosen(graph: Graph, text: str, *, location: str = "") -> tuple[str, ...]:
    """Return the paths of the modules that a selection names, outermost ones only.

    Args:
        graph: a checked graph.
        text: such as `encoder.*`, `decoder.0-2.feed_forward/f` or `**[use=attention@1]`.
        location: where the selection is written, for the message.

    Raises:
        InputError: it cannot be parsed or selects nothing; the help names the nearest path.
    """
    return chosen_in(graph.root, text, location=location)


def frozen_weights(graph: Graph, freeze: Iterable[str], train: Iterable[str] = ()) -> set[str]:
    """Return the paths of the weights that a run freezes.

    Args:
        graph: graph of an objective.
        freeze: selections of parts.
        train: patterns of weights in these parts that train nevertheless, also under the other
            paths of a tied weight.

    Raises:
        InputError: a selection is wrong, or selects nothing.
    """
    parts = [
        path
        for number, text in enumerate(freeze)
        for path in chosen(graph, text, location=f"/freeze/{number}")
    ]
    inside = tuple(f"{path}." for path in parts)
    tied = {path: group for group in graph.ties for path in group}
    frozen = {name for name in graph.root.weights() if inside and name.startswith(inside)}
    for number, pattern in enumerate(train):
        trainable = set(fnmatch.filter(frozen, pattern))
        if not trainable:
            raise InputError(
                f"the pattern '{pattern}' names no frozen weight",
                location=f"/train/{number}",
                help=did_you_mean(pattern, frozen) or "write a pattern such as '*.lora.*'",
            )
        frozen.difference_update(*(tied.get(name, (name,)) for name in trainable))
    return frozen


def trained_weights(graph: Graph, freeze: Iterable[str], train: Iterable[str] = ()) -> set[str]:
    """Return the paths of the weights that a run trains; arguments as of `frozen_weights`.

    A weight that is tied to a frozen one is frozen too, and so are the model of a frozen node and
    what rules of the spec freeze.
    """
    frozen = {*frozen_weights(graph, freeze, train), *fixed_weights(graph)}
    ties = (group for group in graph.ties if not frozen.isdisjoint(group))
    models = tuple(f"{node.name}." for node, _ in graph.models() if node.frozen)
    return {
        name
        for name in graph.root.weights().keys() - frozen.union(*ties)
        if not (models and name.startswith(models))
    }


def marked_frozen(graph: Graph) -> Graph:
    """Return a graph whose nodes are frozen if rules of the spec freeze all their weights.

    It shows what trains; a node that is frozen in some copies of a template only is not marked.
    """
    fixed = fixed_weights(graph)
    if not fixed:
        return graph
    trains = dict[int, bool]()
    for visit in visits(graph.root, "weights"):
        node = visit.node
        if visit.kind == "name" and isinstance(node, BlockNode):
            paths = {f"{visit.module}.{name}" for name in node.weights()}
            trains[id(node)] = trains.get(id(node), not paths) or not paths <= fixed.keys()
    marked: dict[int, Scope] = {}

    def of_scope(scope: Scope) -> Scope:
        if id(scope) not in marked:
            marked[id(scope)] = replace(scope, nodes=tuple(map(of_node, scope.nodes)))
        return marked[id(scope)]

    def of_node(node: Node) -> Node:
        if isinstance(node, BlockNode):
            return replace(node, frozen=node.frozen or not trains.get(id(node), True))
        if model_of(node) is not None:
            return node
        if isinstance(node, RepeatNode):
            others = {index: of_scope(body) for index, body in node.instead.items()}
            return replace(node, body=of_scope(node.body), instead=others)
        return replace(node, body=of_scope(node.body))

    return replace(graph, root=of_scope(graph.root))
