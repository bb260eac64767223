"""What a hover shows: types and shapes of wires, documentation, values of params, costs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from ....graphs.cost.flops import part_flops, times_in
from ....graphs.ir.value_type import evaluate as size_of
from ....plugin import (
    BlockNode,
    BlockType,
    InputError,
    Node,
    RepeatNode,
    Scope,
    ValueType,
    analysed,
    default_sizes,
)
from ....specs.escaping import markdown, markdown_code
from ....specs.inherit import parent_of
from .document import TextDocument, document, site
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
    doc, caret = document(text, path), cursor(text, offset)
    if doc.kind == "other":
        return None
    name = name_at(doc, offset)
    about = list(_wire(doc, caret)) or (list(_named(doc, name)) if name else [])
    if about:
        start, end = (name.start, name.end) if name else (caret.start, caret.end)
        if caret.role == "value" and site(caret.value.path).below[:1] in (("in",), ("outputs",)):
            start, end = caret.start, caret.end
        return Hover(start, end, "\n\n".join(about))
    if caret.role != "key":
        return None
    about = list(_key(doc, caret))
    return Hover(caret.start, caret.end, "\n\n".join(about)) if about else None


def _wire(doc: TextDocument, caret: Cursor) -> Iterator[str]:
    """Yield what is known of the value that a wire or an output reads, or of a port."""
    at = site(caret.value.path)
    value = str(caret.value.scalar)
    if caret.role == "value" and caret.value.kind == "string":
        if (at.node and at.below[:1] == ("in",)) or (not at.node and at.below[:1] == ("outputs",)):
            type_ = doc.type_of(at.scope, value)
            if type_ is not None:
                yield f"**{value}** `{type_}`"
                yield from _shape(doc, type_)
                node = doc.node(at.scope, value.partition(".")[0])
                yield from _about_node(doc, node) if node and "." in value else ()
    elif caret.role == "key" and at.node and at.below[:1] == ("in",) and len(at.below) == 2:  # noqa: PLR2004
        record = doc.nodes(at.scope).get(at.node, {})
        port = ports_of(doc, at.scope, record).get(caret.value.name)
        if port is not None:
            optional = ", optional" if port.optional else ""
            yield f"**{markdown(port.name)}** port `{port.type}`{optional}"
            wired_type = doc.type_of(at.scope, value)
            yield f"reads {markdown_code(str(value))}" + (
                f" of type `{wired_type}`" if wired_type else ""
            )
            if port.doc:
                yield port.doc


def _named(doc: TextDocument, name: Name) -> Iterator[str]:
    match name.kind:
        case "node":
            node = doc.node(name.scope, name.name)
            if node is not None:
                yield f"**{name.name}** node"
                yield from _about_node(doc, node)
        case "template":
            yield from _template(doc, name.name)
        case "param":
            yield from _param(doc, name)
        case "index":
            yield f"**{name.name}** number of the copy, from 0 on"
        case "block":
            block = doc.registry.get(name.name)
            yield from about_block(block) if block else ()
        case "axis":
            kind = doc.merged.get("axes", {}).get(name.name, "")
            yield f"**{name.name}** axis of kind {kind}"
        case "input" | "port" | "output":
            yield from _port(doc, name)
        case "file":
            yield from _file(doc, name.name)


def _port(doc: TextDocument, name: Name) -> Iterator[str]:
    scope = doc.scope(name.scope)
    port_type = scope.inputs.get(name.name) if scope and name.kind != "output" else None
    if port_type is None and scope is not None:
        port_type = scope.gives().get(name.name)
    what = {"input": "input", "output": "output", "port": "port of the template"}[name.kind]
    yield f"**{name.name}** {what}" + (f" `{port_type}`" if port_type else "")
    yield from _shape(doc, port_type) if port_type else ()


def _shape(doc: TextDocument, type_: ValueType) -> Iterator[str]:
    """Yield the shape of a value for the default sizes of the axes."""
    if doc.graph is None:
        return
    sizes = default_sizes(doc.graph)
    try:
        shape = [size_of(axis, sizes) for axis in type_.axes]
    except (KeyError, TypeError, ValueError):  # an axis of unknown size
        return
    used = ", ".join(f"{axis}={size}" for axis, size in sizes.items() if axis in str(type_))
    yield f"shape ({', '.join(map(str, shape))})" + (f" for {used}" if used else "")


def _about_node(doc: TextDocument, node: Node) -> Iterator[str]:
    """Yield what a node computes, its outputs and its cost."""
    outputs = ", ".join(f"`{port}` `{type_}`" for port, type_ in node.outputs.items())
    if isinstance(node, BlockNode):
        filled = "".join(f", {slot}: {part.key}" for slot, part in node.part.fill.items())
        yield f"`{node.part.key}`{filled} — {node.part.block.doc}"
    elif isinstance(node, RepeatNode):
        shared = ", which share their weights" if node.share else ""
        yield f"{node.repeat} copies of {markdown_code(node.body.name)}{shared}"
    else:
        yield f"{markdown_code(node.body.name)}" + (
            f" — {markdown(node.body.doc)}" if node.body.doc else ""
        )
    yield f"outputs {outputs}"
    yield from _cost(doc, node)


def _cost(doc: TextDocument, node: Node) -> Iterator[str]:
    """Yield parameters and FLOPs of a node; only a correct spec has them."""
    if doc.graph is None or not doc.valid:
        return
    parts = [f"{node.parameters():,} parameters"]
    sizes = default_sizes(doc.graph)
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
    if isinstance(node, BlockNode):
        inside = sum(
            times_in(node.part, below, sizes) * _scope_flops(body, sizes)
            for below, body in node.part.bodies()
        )
        return inside + part_flops(node.part, sizes)
    return sum(count * _scope_flops(body, sizes) for _, body, count in node.insides())


def _scope_flops(scope: Scope, sizes: dict[str, int]) -> int:
    return sum(_flops(node, sizes) for node in scope.nodes)


def _template(doc: TextDocument, name: str) -> Iterator[str]:
    scope = doc.scope(f"/blocks/{name}")
    yield f"**{markdown(name)}** template"
    if scope is None:
        return
    if scope.doc:
        yield markdown(scope.doc)
    inputs = ", ".join(f"`{port}` `{type_}`" for port, type_ in scope.inputs.items())
    outputs = ", ".join(f"`{port}` `{type_}`" for port, type_ in scope.gives().items())
    yield f"{inputs} → {outputs}"
    if doc.valid:
        yield f"{scope.parameters():,} parameters"


def _param(doc: TextDocument, name: Name) -> Iterator[str]:
    written = doc.written(name.scope).get("params", {}).get(name.name, ...)
    if written is ...:
        return
    text = json.dumps(written, ensure_ascii=False)
    if name.scope:  # its value differs from use to use
        template = name.scope.removeprefix("/blocks/")
        yield f"**{markdown(name.name)}** param of {markdown_code(template)}, " + (
            "which each use sets"
            if written is None
            else f"{markdown_code(text)} unless a use sets it"
        )
        return
    yield f"**{markdown(name.name)}** param = {markdown_code(text)}"
    value = doc.values.get(name.name, written)
    if value != written:
        yield f"value {markdown_code(json.dumps(value, ensure_ascii=False, default=str))}"
    if isinstance(value, dict) and (block := doc.registry.get(str(value.get("use")))):
        yield from about_block(block)


def about_block(block: BlockType) -> Iterator[str]:
    """Yield the documentation of a block in Markdown: what it computes, its ports, its source."""
    yield f"**{block.key}** {block.doc}"
    signature = example_signature(block)
    inputs = "".join(
        f"- `{port.name}` `{port.type}`{' optional' if port.optional else ''} {port.doc}\n"
        for port in signature.inputs
    )
    outputs = "".join(
        f"- → `{port.name}` `{port.type}`{' optional' if port.optional else ''} {port.doc}\n"
        for port in signature.outputs
    )
    slots = "".join(f"- slot `{slot.name}` {slot.doc}\n" for slot in signature.slots)
    yield (inputs + outputs + slots).rstrip()
    yield f"*{block.source}*"


def _file(doc: TextDocument, name: str) -> Iterator[str]:
    """Yield the documentation and the size of a spec that the text names."""
    file = parent_of(name, Path(doc.path))
    if file is None:
        return
    yield f"**{markdown(name)}** {markdown_code(str(file))}"
    try:
        graph, _ = analysed(file)
    except InputError:
        return
    if graph is not None:
        yield markdown(graph.doc)
        total = sum(prod(shape) for shape in graph.weights().values())
        yield f"{total:,} parameters"


def _key(doc: TextDocument, caret: Cursor) -> Iterator[str]:
    """Yield the documentation of a key: of a param of a block, or of the language."""
    outer = caret.value.path[:-1]
    schema = properties(doc.kind, doc.root.json(), outer).get(caret.value.name)
    at = site(caret.value.path)
    if schema is None and at.below[:1] == ("set",):
        return
    if schema is None:
        return
    block = chosen(doc, record_at(doc, at.use).get("use"))[0] if at.use else ""
    of = f" of `{block}`" if block and at.below[:1] == ("params",) else ""
    default = f", default `{json.dumps(schema['default'])}`" if "default" in schema else ""
    yield f"**{caret.value.name}**{of}{default}"
    if schema.get("description"):
        yield str(schema["description"])
    try:
        value = doc.value_of(caret.value.scalar)
    except ValueError:
        return
    if value != caret.value.scalar:
        yield f"value `{json.dumps(value, default=str)}`"
