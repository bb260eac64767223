"""What a hover shows: types and shapes of wires, documentation, values of params, costs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from ....graphs.cost.flops import default_sizes, part_flops
from ....graphs.ir.graph import BlockNode, Node, RepeatNode, Scope
from ....graphs.ir.value_type import evaluate as size_of
from ....plugin import BlockType, ValueType
from ....runtime.spec.check import analysed
from ....specs.composition.inherit import parent_of
from ....specs.findings import InputError
from .document import Document, document, site
from .names import Name, name_at
from .ports import chosen, example_signature, ports_of, record_at
from .positions import Cursor, cursor
from .schemas import properties


@dataclass(frozen=True, slots=True)
class Hover:
    """Text about a range, in Markdown."""

    start: int
    end: int
    markdown: str

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {"start": self.start, "end": self.end, "markdown": self.markdown}


def hover(text: str, offset: int, path: str) -> Hover | None:
    """Return what is known of the word at an offset.

    Args:
        text: a spec, a run or a study.
        offset: characters from its start.
        path: the file.
    """
    known, here = document(text, path), cursor(text, offset)
    if known.kind == "other":
        return None
    name = name_at(known, offset)
    about = list(_wire(known, here)) or (list(_named(known, name)) if name else [])
    if about:
        start, end = (name.start, name.end) if name else (here.start, here.end)
        if here.role == "value" and site(here.value.path).rest[:1] in (("in",), ("outputs",)):
            start, end = here.start, here.end
        return Hover(start, end, "\n\n".join(about))
    if here.role != "key":
        return None
    about = list(_key(known, here))
    return Hover(here.start, here.end, "\n\n".join(about)) if about else None


def _wire(known: Document, here: Cursor) -> Iterator[str]:
    """Yield what is known of the value that a wire or an output reads, or of a port."""
    at = site(here.value.path)
    value = str(here.value.plain)
    if here.role == "value" and here.value.kind == "string":
        if (at.node and at.rest[:1] == ("in",)) or (not at.node and at.rest[:1] == ("outputs",)):
            type_ = known.type_of(at.scope, value)
            if type_ is not None:
                yield f"**{value}** `{type_}`"
                yield from _shape(known, type_)
                node = known.node(at.scope, value.partition(".")[0])
                yield from _about_node(known, node) if node and "." in value else ()
    elif here.role == "key" and at.node and at.rest[:1] == ("in",) and len(at.rest) == 2:  # noqa: PLR2004
        record = known.nodes(at.scope).get(at.node, {})
        port = ports_of(known, at.scope, record).get(here.value.name)
        if port is not None:
            optional = ", optional" if port.optional else ""
            yield f"**{port.name}** port `{port.type}`{optional}"
            given = known.type_of(at.scope, value)
            yield f"reads `{value}`" + (f" of type `{given}`" if given else "")
            if port.doc:
                yield port.doc


def _named(known: Document, name: Name) -> Iterator[str]:
    match name.kind:
        case "node":
            node = known.node(name.scope, name.name)
            if node is not None:
                yield f"**{name.name}** node"
                yield from _about_node(known, node)
        case "template":
            yield from _template(known, name.name)
        case "param":
            yield from _param(known, name.name)
        case "block":
            block = known.registry.get(name.name)
            yield from about_block(block) if block else ()
        case "axis":
            kind = known.merged.get("axes", {}).get(name.name, "")
            yield f"**{name.name}** axis of kind {kind}"
        case "input" | "port" | "output":
            yield from _port(known, name)
        case "file":
            yield from _file(known, name.name)


def _port(known: Document, name: Name) -> Iterator[str]:
    scope = known.scope(name.scope)
    given = scope.inputs.get(name.name) if scope and name.kind != "output" else None
    if given is None and scope is not None:
        given = scope.gives().get(name.name)
    what = {"input": "input", "output": "output", "port": "port of the template"}[name.kind]
    yield f"**{name.name}** {what}" + (f" `{given}`" if given else "")
    yield from _shape(known, given) if given else ()


def _shape(known: Document, type_: ValueType) -> Iterator[str]:
    """Yield the shape of a value for the default sizes of the axes."""
    if known.graph is None:
        return
    sizes = default_sizes(known.graph)
    try:
        shape = [size_of(axis, sizes) for axis in type_.axes]
    except (KeyError, TypeError, ValueError):  # an axis of unknown size
        return
    used = ", ".join(f"{axis}={size}" for axis, size in sizes.items() if axis in str(type_))
    yield f"shape ({', '.join(map(str, shape))})" + (f" for {used}" if used else "")


def _about_node(known: Document, node: Node) -> Iterator[str]:
    """Yield what a node computes, its outputs and its cost."""
    outputs = ", ".join(f"`{port}` `{type_}`" for port, type_ in node.outputs.items())
    if isinstance(node, BlockNode):
        filled = "".join(f", {slot}: {part.key}" for slot, part in node.part.fill.items())
        yield f"`{node.part.key}`{filled} — {node.part.block.doc}"
    elif isinstance(node, RepeatNode):
        shared = ", which share their weights" if node.share else ""
        yield f"{node.repeat} copies of `{node.body.name}`{shared}"
    else:
        yield f"`{node.body.name}`" + (f" — {node.body.doc}" if node.body.doc else "")
    yield f"outputs {outputs}"
    yield from _cost(known, node)


def _cost(known: Document, node: Node) -> Iterator[str]:
    """Yield parameters and FLOPs of a node; only a correct spec has them."""
    if known.graph is None or not known.valid:
        return
    parts = [f"{node.parameters():,} parameters"]
    sizes = default_sizes(known.graph)
    with contextlib.suppress(KeyError):  # an axis of a model that a param holds
        parts.append(f"{_flops(node, sizes):,} FLOPs for {_listed(sizes)}")
    yield ", ".join(parts)


def _listed(sizes: dict[str, int]) -> str:
    return ", ".join(f"{axis}={size}" for axis, size in sizes.items())


def _flops(node: Node, sizes: dict[str, int]) -> int:
    """Return the operations of one forward pass of a node, templates in slots included."""
    if isinstance(node, RepeatNode):  # copies that share weights compute, too
        others = sum(_scope_flops(body, sizes) for body in node.instead.values())
        return others + (node.repeat - len(node.instead)) * _scope_flops(node.body, sizes)
    inside = sum(count * _scope_flops(body, sizes) for _, body, count in node.insides())
    return inside + (part_flops(node.part, sizes) if isinstance(node, BlockNode) else 0)


def _scope_flops(scope: Scope, sizes: dict[str, int]) -> int:
    return sum(_flops(node, sizes) for node in scope.nodes)


def _template(known: Document, name: str) -> Iterator[str]:
    scope = known.scope(f"/blocks/{name}")
    yield f"**{name}** template"
    if scope is None:
        return
    if scope.doc:
        yield scope.doc
    inputs = ", ".join(f"`{port}` `{type_}`" for port, type_ in scope.inputs.items())
    outputs = ", ".join(f"`{port}` `{type_}`" for port, type_ in scope.gives().items())
    yield f"{inputs} → {outputs}"
    if known.valid:
        yield f"{scope.parameters():,} parameters"


def _param(known: Document, name: str) -> Iterator[str]:
    written = known.merged.get("params", {}).get(name, ...)
    if written is ...:
        return
    text = json.dumps(written, ensure_ascii=False)
    yield f"**{name}** param = `{text}`"
    value = known.values.get(name, written)
    if value != written:
        yield f"value `{json.dumps(value, ensure_ascii=False, default=str)}`"
    if isinstance(value, dict) and (block := known.registry.get(str(value.get("use")))):
        yield from about_block(block)


def about_block(block: BlockType) -> Iterator[str]:
    """Yield the documentation of a block in Markdown: what it computes, its ports, its source."""
    yield f"**{block.key}** {block.doc}"
    made = example_signature(block)
    inputs = "".join(
        f"- `{port.name}` `{port.type}`{' optional' if port.optional else ''} {port.doc}\n"
        for port in made.inputs
    )
    outputs = "".join(f"- → `{port.name}` `{port.type}` {port.doc}\n" for port in made.outputs)
    slots = "".join(f"- slot `{slot.name}` {slot.doc}\n" for slot in made.slots)
    yield (inputs + outputs + slots).rstrip()
    yield f"*{block.source}*"


def _file(known: Document, name: str) -> Iterator[str]:
    """Yield the documentation and the size of a spec that the text names."""
    file = parent_of(name, Path(known.path))
    if file is None:
        return
    yield f"**{name}** `{file}`"
    try:
        graph, _ = analysed(file)
    except InputError:
        return
    if graph is not None:
        yield graph.doc
        total = sum(prod(shape) for shape in graph.weights().values())
        yield f"{total:,} parameters"


def _key(known: Document, here: Cursor) -> Iterator[str]:
    """Yield the documentation of a key: of a param of a block, or of the language."""
    outer = here.value.path[:-1]
    found = properties(known.kind, known.root.json(), outer).get(here.value.name)
    at = site(here.value.path)
    if found is None and at.rest[:1] == ("set",):
        return
    if found is None:
        return
    block = chosen(known, record_at(known, at.use).get("use"))[0] if at.use else ""
    of = f" of `{block}`" if block and at.rest[:1] == ("params",) else ""
    default = f", default `{json.dumps(found['default'])}`" if "default" in found else ""
    yield f"**{here.value.name}**{of}{default}"
    if found.get("description"):
        yield str(found["description"])
    try:
        value = known.value_of(here.value.plain)
    except ValueError:
        return
    if value != here.value.plain:
        yield f"value `{json.dumps(value, default=str)}`"
