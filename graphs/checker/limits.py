"""Limits: check how large a spec becomes, before anything is expanded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import networkx as nx

from ...specs.expressions import is_expression
from ...specs.findings import pointer
from ...specs.form import RepeatNode, Spec, Use, UseNode
from .params import Report, Values

MOST_COPIES = 10_000
"""Maximum number of copies of one repeat."""
MOST_NODES = 100_000
"""Maximum number of nodes of a spec with its repeats expanded."""
DEEPEST = 32
"""Maximum nesting depth of templates."""


def copies(count: Any) -> int | None:
    """Return a number of copies, or None if it is not valid."""
    whole = isinstance(count, int) and not isinstance(count, bool)
    return count if whole and 1 <= count <= MOST_COPIES else None


def template_graph(spec: Spec, params: Mapping[str, Any]) -> nx.DiGraph:
    """Return the graph of which template uses which; ``""`` is the spec itself.

    Args:
        spec: the spec as written.
        params: values of its params, some of which may choose templates.
    """
    uses = nx.DiGraph()
    uses.add_nodes_from(["", *spec.blocks])
    scopes = {"": spec.nodes, **{name: t.nodes for name, t in spec.blocks.items()}}
    for name, nodes in scopes.items():
        used = (other for node in nodes.values() for other in _templates_of(node, params))
        uses.add_edges_from((name, other) for other in used if other in spec.blocks)
    return uses


def unused_templates(spec: Spec, params: Mapping[str, Any]) -> list[str]:
    """Return the templates that nothing uses, except those that only unused templates use."""
    uses = template_graph(spec, params)
    uses.remove_nodes_from({"", *nx.descendants(uses, "")})
    cycles = nx.condensation(uses)
    first = (cycle for cycle in cycles if cycles.in_degree(cycle) == 0)
    return sorted(min(cycles.nodes[cycle]["members"]) for cycle in first)


def within_limits(spec: Spec, values: Values, report: Report) -> bool:
    """Return whether a spec may be expanded, and report what is too large or too deep."""
    uses = template_graph(spec, values.known)
    for cycle in list(nx.strongly_connected_components(uses)):
        # A template that contains itself has its own finding; here the cycle is cut.
        uses.remove_edges_from(
            [(a, b) for a in cycle for b in list(uses.successors(a)) if b in cycle]
        )
    sizes: dict[str, int] = {}
    depths: dict[str, int] = {}

    def measure(node: UseNode | RepeatNode, at: str) -> tuple[int, int]:
        if isinstance(node, RepeatNode):
            count = copies(values.resolve(node.repeat, at + pointer("repeat"))) or 1
            deep = max(depths.get(name, 0) for name in _templates_of(node, values.known))
            others = sum(sizes.get(name, 1) for name in node.instead.values())
            return count * sizes.get(node.block, 1) + others, deep
        inside = [name for name in _templates_of(node, values.known) if name in spec.blocks]
        size = _blocks_in(node) + sum(sizes.get(name, 1) for name in inside)
        return size, max((depths.get(name, 0) for name in inside), default=0)

    for name in reversed(list(nx.topological_sort(uses))):
        if not name:
            continue
        at = pointer("blocks", name)
        nodes = spec.blocks[name].nodes
        found = [measure(node, at + pointer("nodes", key)) for key, node in nodes.items()]
        sizes[name] = max(1, sum(size for size, _ in found))
        depths[name] = 1 + max((depth for _, depth in found), default=0)
    measured = {key: measure(node, pointer("nodes", key)) for key, node in spec.nodes.items()}
    total = sum(size for size, _ in measured.values())
    if total > MOST_NODES:
        largest = max(measured, key=lambda key: measured[key][0])
        report(
            code="P06",
            at=pointer("nodes", largest),
            problem=f"the expanded spec has {_shown(total)} nodes, more than {MOST_NODES:,}",
            evidence=(f"'{largest}' has {_shown(measured[largest][0])} of them",),
            help="repeat less often, or nest fewer repeats",
        )
    places = {pointer("nodes", key): depth for key, (_, depth) in measured.items()}
    places |= {pointer("blocks", name): depth for name, depth in depths.items()}
    deepest = max(places, key=lambda at: places[at], default="")
    too_deep = bool(deepest) and places[deepest] > DEEPEST
    if too_deep:
        report(
            code="W06",
            at=deepest,
            problem=f"templates are nested {places[deepest]} levels deep",
            evidence=(f"at most {DEEPEST}",),
            help="use 'repeat' for copies in a row",
        )
    return total <= MOST_NODES and not too_deep


def stand_ins(spec: Spec) -> frozenset[str]:
    """Return the templates that only replace single copies of a repeat."""
    scopes = [spec.nodes, *(template.nodes for template in spec.blocks.values())]
    nodes = [node for scope in scopes for node in scope.values()]
    repeats = [node for node in nodes if isinstance(node, RepeatNode)]
    replacing = {name for node in repeats for name in node.instead.values()}
    return frozenset(replacing - {node.block for node in repeats})


def _templates_of(node: Use | RepeatNode, params: Mapping[str, Any]) -> list[str]:
    """Return every name that a node uses, slots included."""
    if isinstance(node, RepeatNode):
        return [node.block, *node.instead.values()]
    chosen = params.get(node.use[1:].strip()) if is_expression(node.use) else None
    use = chosen.get("use") if isinstance(chosen, dict) else node.use
    inside = (name for inner in node.fill.values() for name in _templates_of(inner, params))
    return [use if isinstance(use, str) else "", *inside]


def _blocks_in(use: Use) -> int:
    return 1 + sum(map(_blocks_in, use.fill.values()))


def _shown(count: int) -> str:
    return f"{count:,}" if count < 10**15 else "over 10^15"
