"""Halves: a graph cut in two, where some of its inputs come in.

What does not depend on them is the first half, computed once; the rest is the second,
which may run again and again, as a decoder does that writes all words at once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ...specs.form import Spec
from ...specs.reader import parse
from ..checker.check import check
from ..checker.decodability import moving_values
from ..ir.block_type import Registry
from ..ir.canonical import canonical
from ..ir.graph import Graph

_AXIS = re.compile(r"\b[A-Z][A-Za-z0-9]*\b")


def halves(graph: Graph, later: Collection[str], registry: Registry) -> tuple[Graph, Graph]:
    """Cut a graph where some inputs come in.

    Nodes keep their names, and so do parameters.  A value that the second half reads of
    the first is called `NODE_PORT`, as an output of the one and an input of the other.

    Args:
        graph: the whole.
        later: inputs that the first half does not have.
        registry: the block types that the graph names.

    Returns:
        The two halves; each keeps the outputs that it can give.

    Raises:
        SpecError: one of them would be no graph, as when nothing depends on `later`.
    """
    root, full = graph.root, canonical(graph)
    moving = moving_values(root, frozenset(later))
    second = {n.name for n in root.nodes if any(v in moving for v in n.wires.values())}
    read = {value for n in root.nodes if n.name in second for value in n.wires.values()}
    crossing = {v: v.replace(".", "_") for v in sorted(read - moving) if "." in v}
    nodes: Mapping[str, dict[str, Any]] = full["nodes"]
    first_half = {name: node for name, node in nodes.items() if name not in second}
    second_half = {
        name: {**node, "in": {port: crossing.get(v, v) for port, v in node["in"].items()}}
        for name, node in nodes.items()
        if name in second
    }
    given = {port: value for port, value in full["outputs"].items() if value not in moving}
    types = {name: str(root.type_of(value)) for value, name in crossing.items()}
    crossed = {name: value for value, name in crossing.items()}
    return (
        _graph(full, registry, "first", first_half, full["inputs"], given | crossed),
        _graph(
            full,
            registry,
            "second",
            second_half,
            full["inputs"] | types,
            {port: value for port, value in full["outputs"].items() if value in moving},
        ),
    )


def _graph(
    full: Mapping[str, Any],
    registry: Registry,
    half: str,
    nodes: Mapping[str, dict[str, Any]],
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
) -> Graph:
    """Return the graph of some of a full form's nodes, with nothing that they do not use."""
    read = {value for node in nodes.values() for value in node["in"].values()}
    kept = {name: type_ for name, type_ in inputs.items() if name in read}
    axes = {axis for type_ in kept.values() for axis in _AXIS.findall(type_)}
    used = set(_templates(nodes, full.get("blocks", {})))
    value = {
        "format": full["format"],
        "name": f"{full['name']}-{half}",
        "axes": {name: kind for name, kind in full["axes"].items() if name in axes},
        "inputs": kept,
        "outputs": outputs,
        "blocks": {name: block for name, block in full.get("blocks", {}).items() if name in used},
        "nodes": nodes,
        "tie": [
            group
            for paths in full.get("tie", [])
            if len(group := [path for path in paths if path.partition(".")[0] in nodes]) > 1
        ],
    }
    source = f"{full['name']}, {half} half"
    return check(parse(Spec, value, source), registry, source=source)


def _templates(nodes: Mapping[str, Any], blocks: Mapping[str, Any]) -> Iterator[str]:
    """Walk the templates that nodes use, and those inside them."""
    todo: list[Any] = list(nodes.values())
    while todo:
        record = todo.pop()
        names = [record.get("use"), record.get("block"), *record.get("instead", {}).values()]
        todo += record.get("fill", {}).values()
        for name in names:
            if name in blocks:
                yield name
                todo += blocks[name]["nodes"].values()
