"""Partition: split a graph in two at the point where some of its inputs enter.

The first part does not depend on these inputs and is computed once.  The second part may run
repeatedly, as in a decoder that predicts all tokens at once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from ...specs.form import SpecForm
from ...specs.reader import parse
from ...specs.references import templates_used
from ..checker.check import check
from ..ir.block_type import Registry
from ..ir.canonical import canonical
from ..ir.graph import Graph

_AXIS = re.compile(r"\b[A-Z][A-Za-z0-9]*\b")


def partition(graph: Graph, later: Collection[str], registry: Registry) -> tuple[Graph, Graph]:
    """Split a graph in two where some inputs enter.

    Nodes and parameters keep their names.  A value of the first part that the second part reads
    is called `NODE_PORT`, as an output of the first and as an input of the second.

    Args:
        graph: the graph to split.
        later: inputs that the first part does not have.
        registry: the block types that the graph names.

    Returns:
        The two parts, each with the outputs that it can compute.

    Raises:
        SpecError: one of them would not be a graph, for example if nothing depends on `later`.
    """
    root, full = graph.root, canonical(graph)
    moving, second = set(later), set[str]()
    for node in root.nodes:  # a node is in one part, with all its outputs
        if not moving.isdisjoint(node.wires.values()):
            second.add(node.name)
            moving.update(f"{node.name}.{port}" for port in node.outputs)
    read = {value for n in root.nodes if n.name in second for value in n.wires.values()}
    crossing = {v: v.replace(".", "_") for v in sorted(read - moving) if "." in v}
    nodes: Mapping[str, dict[str, Any]] = full["nodes"]
    first_nodes = {name: node for name, node in nodes.items() if name not in second}
    second_nodes = {
        name: {**node, "in": {port: crossing.get(v, v) for port, v in node["in"].items()}}
        for name, node in nodes.items()
        if name in second
    }
    outputs = {port: value for port, value in full["outputs"].items() if value not in moving}
    types = {name: str(root.type_of(value)) for value, name in crossing.items()}
    crossed = {name: value for value, name in crossing.items()}
    return (
        subgraph(full, registry, "first", first_nodes, full["inputs"], outputs | crossed),
        subgraph(
            full,
            registry,
            "second",
            second_nodes,
            full["inputs"] | types,
            {port: value for port, value in full["outputs"].items() if value in moving},
        ),
    )


def subgraph(
    full: Mapping[str, Any],
    registry: Registry,
    part: str,
    nodes: Mapping[str, dict[str, Any]],
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    *,
    step: str | None = None,
) -> Graph:
    """Return the graph of some nodes of a canonical form, without unused inputs and axes.

    Args:
        full: the canonical form.
        registry: the block types that it names.
        part: what to call the part in its name.
        nodes: the nodes by name, with their wires.
        inputs: types of the inputs, of which those that are read are kept.
        outputs: output to the value that it returns.
        step: the step axis of the part; None if it has none.

    Raises:
        SpecError: the part has no such steps.
    """
    read = {value for node in nodes.values() for value in node["in"].values()}
    read |= {*outputs.values()}
    needed = {name: type_ for name, type_ in inputs.items() if name in read}
    axes = {axis for type_ in needed.values() for axis in _AXIS.findall(type_)}
    used = templates_used(full, nodes)
    value = {
        "format": full["format"],
        "name": f"{full['name']}-{part}",
        "axes": {name: kind for name, kind in full["axes"].items() if name in axes},
        "inputs": needed,
        "outputs": outputs,
        "blocks": {name: block for name, block in full.get("blocks", {}).items() if name in used},
        "nodes": nodes,
        "tie": [
            group
            for paths in full.get("tie", [])
            if len(group := [path for path in paths if path.partition(".")[0] in nodes]) > 1
        ],
        **({} if step is None else {"step": {"axis": step}}),
    }
    source = f"{full['name']}, {part} part"
    return check(parse(SpecForm, value, source), registry, source=source, checked=True)
