"""The commands `weft check`, `show`, `expand`, `draw` and `blocks`; no torch."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

from ....blocks.registry import registry
from ....graphs.draw.diagram import draw as draw_graph
from ....graphs.draw.outline import as_json, render
from ....graphs.ir.block_type import BlockType
from ....graphs.ir.canonical import canonical, fingerprint
from ....graphs.ir.graph import Graph
from ....specs.findings import InputError, SpecError
from ....specs.load import load, parse_overrides
from ...spec.check import graph_of
from ...spec.provenance import provenance
from ...spec.provenance import render as render_provenance


def _graph(options: Namespace) -> Graph:
    return graph_of(load(options.spec, parse_overrides(options.set)))


def check(options: Namespace) -> int:
    """Print every mistake in the spec, or that it is valid."""
    try:
        graph = _graph(options)
    except SpecError as error:
        if not options.json:
            raise
        print(json.dumps({"findings": [f.as_json() for f in error.findings]}, indent=2))
        return 1
    if options.json:
        print(json.dumps({"findings": [], "fingerprint": fingerprint(graph)}, indent=2))
        return 0
    decodes = f", decodes along {graph.step_axis}" if graph.step_axis else ""
    print(f"{graph.name}: valid; {graph.parameters():,} parameters{decodes}")
    return 0


def show(options: Namespace) -> None:
    """Print the tree of nodes."""
    graph = _graph(options)
    print(json.dumps(as_json(graph), indent=2) if options.json else render(graph))


def expand(options: Namespace) -> None:
    """Print the full form, or one line per value with its origin."""
    loaded = load(options.spec, parse_overrides(options.set))
    graph = graph_of(loaded)
    if not options.provenance:
        print(json.dumps(canonical(graph), indent=2, ensure_ascii=False))
        return
    found = provenance(graph, loaded)
    if options.json:
        report = {"spec": canonical(graph), "provenance": found}
        print(json.dumps(report, indent=2, ensure_ascii=False))
        return
    print(render_provenance(found))


def draw(options: Namespace) -> None:
    """Draw the spec into a file."""
    print(draw_graph(_graph(options), Path(options.out), options.form))


def blocks(options: Namespace) -> None:
    """Print all registered blocks, or one of them.

    Raises:
        InputError: no block has that name.
    """
    known = registry()
    if options.name is None:
        if options.json:
            print(json.dumps([_described(block) for block in known], indent=2))
            return
        width = max(map(len, known.keys()))
        for each in known:
            print(f"{each.key:{width}}  {each.doc.partition(';')[0].rstrip('.')}")
        return
    block = known.get(options.name) or known.get(known.suggest(options.name))
    if block is None or options.name not in (block.key, block.name):
        near = f"did you mean '{block.key}'?" if block else "see 'weft blocks'"
        raise InputError(f"unknown block '{options.name}'", help=near)
    described = _described(block)
    print(json.dumps(described, indent=2) if options.json else _text(block, described))


def _described(block: BlockType) -> dict[str, Any]:
    """Return a block as plain data; its ports are listed with every optional port wired."""
    params = block.params.model_validate(block.example)
    signature = block.signature(params, frozenset(block.example_inputs))
    schema = block.params.model_json_schema()
    return {
        "use": block.key,
        "doc": block.doc,
        "source": block.source,
        "inputs": {
            port.name: {"type": f"{port.type}{'?' * port.optional}", "doc": port.doc}
            for port in signature.inputs
        },
        "outputs": {
            port.name: {"type": str(port.type), "doc": port.doc} for port in signature.outputs
        },
        "slots": {
            slot.name: {"type": f"{slot.input.type} -> {slot.output.type}", "doc": slot.doc}
            for slot in signature.slots
        },
        "params": schema.get("properties", {}),
        "required": schema.get("required", []),
        "example": {
            "use": block.key,
            **({"params": dict(block.example)} if block.example else {}),
            **({"fill": dict(block.example_fill)} if block.example_fill else {}),
        },
    }


def _text(block: BlockType, described: dict[str, Any]) -> str:
    lines = [block.key, f"  {block.doc}", f"  source: {block.source}"]
    for part in ("inputs", "outputs", "slots"):
        if described[part]:
            lines.append(f"\n{part}")
        width = max([len(name) for name in described[part]], default=0)
        for name, entry in described[part].items():
            lines.append(f"  {name:{width}}  {entry['type']:28} {entry['doc']}")
    if described["params"]:
        lines.append("\nparams")
    width = max([len(name) for name in described["params"]], default=0)
    for name, entry in described["params"].items():
        default = "required" if name in described["required"] else json.dumps(entry.get("default"))
        lines.append(f"  {name:{width}}  {default:28} {entry.get('description', '')}")
    lines.append(f"\nexample\n  {json.dumps(described['example'])}")
    return "\n".join(lines)
