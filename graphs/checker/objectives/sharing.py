"""Sharing: nodes that apply the module of another node again, with the same weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ....specs.findings import did_you_mean, nearest, pointer, respelled
from ....specs.form import AnyNode, RepeatNode, ShareNode, UseNode
from ...ir.graph import Node
from ..records import Findings

_SHAPES_SHOWN = 8
"""Maximum number of weights that a finding about their shapes lists."""


def with_shared(
    findings: Findings, nodes: Mapping[str, AnyNode], at: str
) -> dict[str, UseNode | RepeatNode]:
    """Return the nodes of a scope, those that share a module as uses of its block."""
    found: dict[str, UseNode | RepeatNode] = {}
    owners = {key: node for key, node in nodes.items() if not isinstance(node, ShareNode)}
    for key, node in nodes.items():
        if not isinstance(node, ShareNode):
            found[key] = node
            continue
        name, where = node.share, at + pointer("nodes", key, "share")
        if name not in owners:
            also = f"'{name}' shares the module of another node" if name in nodes else ""
            findings.report(
                code="N02",
                at=where,
                problem=also or f"there is no node '{name}' whose module could be shared",
                help=did_you_mean(name, owners),
                fix=respelled(where, name, owners),
            )
            name = nearest(name, owners) or next(iter(owners), "")
        if name in owners:
            found[key] = owners[name].model_copy(update={"in_": node.in_, "doc": node.doc})
    return found


def check_shared(findings: Findings, nodes: Collection[Node], at: str) -> None:
    """Report nodes that share a module whose weights have other shapes than they need."""
    owners = {node.name: node for node in nodes if not node.shares}
    for node in nodes:
        if node.shares not in owners:
            continue
        needed, known = replace(node, shares="").weights(), owners[node.shares].weights()
        if needed != known:
            differ = [name for name in {**known, **needed} if known.get(name) != needed.get(name)]
            findings.report(
                code="W13",
                at=at + pointer("nodes", node.name, "share"),
                problem=f"'{node.name}' shares the module of '{node.shares}', but for its wires the"
                " weights would have other shapes",
                evidence=tuple(
                    f"{name}  {[*known.get(name, ())]} and {[*needed.get(name, ())]}"
                    for name in differ[:_SHAPES_SHOWN]
                ),
                help="wire values of the same widths and sizes",
            )
