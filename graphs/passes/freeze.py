"""Which nodes a run selects, and which of their weights it freezes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace

from ...specs.findings import InputError
from ..ir.graph import BlockNode, Graph, Node, RepeatNode, Scope
from ..ir.selection import chosen_in, named_paths
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


_AXES = re.compile(r"\[dim=([0-9]{1,2})\]$", re.ASCII)


def selected_weights(graph: Graph, text: str, *, location: str = "") -> set[str]:
    """Return the paths of the weights that a selection names.

    Args:
        graph: a checked graph.
        text: a selection of parts as of `chosen`, whose weights are selected, or of the weights
            themselves, such as `**.bias`; `[dim=2]` at its end keeps those with two axes.
        location: where the selection is written, for the message.

    Raises:
        InputError: it cannot be parsed or selects nothing; the help names the nearest path.
    """
    axes = _AXES.search(text)
    path = text[: axes.start()] if axes else text
    weights = graph.root.weights()
    try:
        inside = tuple(f"{part}." for part in chosen(graph, path, location=location))
        names = {name for name in weights if name.startswith(inside)}
    except InputError:
        names = set(named_paths(path, weights))
        if not names:
            raise
    if axes:
        names = {name for name in names if len(weights[name]) == int(axes[1])}
    if not names:
        what = f"weights with {axes[1]} axes" if axes else "weights"
        raise InputError(
            f"'{text}' selects no {what} in '{graph.name}'",
            location=location,
            help="'weft show --weights' lists the weights and their shapes",
        )
    return names


def frozen_weights(
    graph: Graph,
    freeze: Iterable[str],
    train: Iterable[str] = (),
    others: Collection[str] = (),
) -> set[str]:
    """Return the paths of the weights that a run freezes.

    Args:
        graph: graph of an objective.
        freeze: selections of weights, as of `selected_weights`.
        train: selections of those that train nevertheless, also under the other paths of a tied
            weight.
        others: paths of further weights that the run freezes.

    Raises:
        InputError: a selection is wrong, or selects nothing.
    """
    frozen = {
        path
        for number, text in enumerate(freeze)
        for path in selected_weights(graph, text, location=f"/freeze/{number}")
    }
    tied = {path: group for group in graph.ties for path in group}
    frozen.update(others)
    for number, text in enumerate(train):
        trainable = frozen & selected_weights(graph, text, location=f"/train/{number}")
        if not trainable:
            raise InputError(
                f"'{text}' selects no frozen weight",
                location=f"/train/{number}",
                help="remove it, or write a selection such as '**.lora.**'",
            )
        frozen.difference_update(*(tied.get(name, (name,)) for name in trainable))
    return frozen


def trained_weights(
    graph: Graph,
    freeze: Iterable[str],
    train: Iterable[str] = (),
    others: Collection[str] = (),
) -> set[str]:
    """Return the paths of the weights that a run trains; arguments as of `frozen_weights`.

    A weight that is tied to a frozen one is frozen too, and so are the model of a frozen node and
    what rules of the spec freeze.
    """
    frozen = {*frozen_weights(graph, freeze, train, others), *fixed_weights(graph)}
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
