"""A node alone: one node of a spec between values of some types, checked as a spec of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ....graphs.checker.check import analyse
from ....plugin import (
    BlockType,
    Finding,
    Graph,
    Scope,
    SpecError,
    ValueType,
    pointer,
    registry,
)
from ....specs.form import FORMAT
from ....specs.load import LoadedSpec, loaded
from ....specs.references import references, templates_used
from ..language.proposals import named_sizes, proposals, widths_in

Types = Mapping[str, ValueType | str]
"""Port to the type of its value."""


class Surroundings:
    """The params, axes and templates that a node of a scope can use."""

    def __init__(self, graph: Graph, spec: LoadedSpec, scope: Scope) -> None:
        """Take those of a scope of a checked spec."""
        self.registry = registry(spec.blocks)
        self._value = spec.value()
        self._axes = graph.spec.axes
        inner = {name: value for name, (value, _) in scope.params.items()}
        self._values = {**graph.params, **inner}
        self._sizes = named_sizes(self._value, self._values)

    def proposals(
        self, block: BlockType, params: Mapping[str, Any], takes: Types, gives: Types
    ) -> Iterator[dict[str, Any]]:
        """Yield values for the params that a block needs between some types, the likeliest first.

        Args:
            block: the block.
            params: the params that are set.
            takes: types of its inputs.
            gives: types of its outputs.
        """
        widths = widths_in([*gives.values(), *takes.values()])
        return proposals(block, params, self._values, self._sizes, widths)

    def check(
        self, record: Mapping[str, Any], takes: Types, gives: Types
    ) -> tuple[Graph | None, list[Finding]]:
        """Check a spec with one node, `n`; the graph is None if it has mistakes.

        Args:
            record: the node, whose wires are replaced.
            takes: the types of what it reads; no other port is wired.
            gives: the types of its outputs that are read; another one is a mistake.
        """
        spec = self._value
        blocks = spec.get("blocks", {})
        templates = {name: blocks[name] for name in templates_used(spec, {"n": record})}
        texts = references({"nodes": {"n": record}, "blocks": templates}, spec)
        params = {text.name for text in texts if text.kind == "param" and not text.scope}
        words = {*re.findall(r"\w+", " ".join(map(str, takes.values())))}
        value = {
            "format": FORMAT,
            "name": "place",
            "params": {name: self._values[name] for name in params & self._values.keys()},
            "axes": {axis: kind for axis, kind in self._axes.items() if axis in words},
            "inputs": {f"{port}_": str(type_) for port, type_ in takes.items()},
            "outputs": {port: f"n.{port}" for port in gives},
            "nodes": {"n": {**record, "in": {port: f"{port}_" for port in takes}}},
        }
        if templates:
            value["blocks"] = templates
        try:
            read = loaded(value)
        except SpecError as error:
            return None, list(error.findings)
        graph, findings = analyse(read.recovered, self.registry, lost=read.lost)
        if graph is None:
            return None, findings
        for port, type_ in gives.items():
            if str(type_) != str(graph.outputs[port]):
                problem = f"output '{port}' would be {graph.outputs[port]}, and {type_} is read"
                return None, [Finding(code="T", at=pointer("nodes", "n"), problem=problem)]
        return graph, []
