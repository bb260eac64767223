"""Diagram picture: which boxes, frames and wires a diagram has, before they are DOT.

A DOT name is `node/`, `stack/`, `input/` or `output/` and the path in the graph; what looks
how is decided in `diagram.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..ir.flat import flat_graph
from ..ir.graph import BlockNode, Graph, Part, RepeatNode, Scope, TemplateNode
from ..ir.value_type import ValueType

MASKS = frozenset({"mask", "bias", "len", "pos"})
"""Kinds of values that steer other blocks; their wires are thin."""

_Value = tuple[str, ValueType]
"""The box that gives a value, and its type."""


@dataclass(slots=True)
class Frame:
    """A template in its place, or the whole picture."""

    path: str
    title: str
    copies: int | None = None
    said: str = ""
    """What stands beside the number of copies."""
    stacks: dict[str, str] = field(default_factory=dict)
    """DOT names of what is collected directly in it, to the words for it."""
    boxes: list[str] = field(default_factory=list)
    """DOT names of the boxes that lie directly in it."""
    frames: list[Frame] = field(default_factory=list)


@dataclass(slots=True)
class Picture:
    """Boxes, frames and wires, before they are DOT."""

    root: Frame
    unfolded: bool = False
    """Whether every copy is drawn."""
    notes: dict[str, list[str]] = field(default_factory=dict)
    """DOT name of a box to what its second line says besides params."""
    boxes: dict[str, Part] = field(default_factory=dict)
    """DOT name of a box to its block."""
    wires: dict[tuple[str, str], list[ValueType]] = field(default_factory=dict)
    """The two ends to the types between them."""

    def wire(self, source: str, target: str, type_: ValueType) -> None:
        """Draw a wire; a second one of the same type is the same line."""
        types = self.wires.setdefault((source, target), [])
        if type_ not in types:
            types.append(type_)

    def note(self, box: str, text: str) -> None:
        """Add words to the second line of a box, once."""
        words = self.notes.setdefault(box, [])
        if text not in words:
            words.append(text)


def fold(graph: Graph) -> Picture:
    """Return a picture with each template once."""
    picture = Picture(Frame("", graph.name))
    _place(picture, picture.root, graph.root, "")
    inputs = {name: (f"input/{name}", type_) for name, type_ in graph.inputs.items()}
    for name, (box, type_) in _wire_folded(picture, graph.root, "", inputs).items():
        picture.wire(box, f"output/{name}", type_)
    return picture


def unfold(graph: Graph) -> Picture:
    """Return a picture with every copy."""
    picture = Picture(Frame("", graph.name), unfolded=True)
    _place(picture, picture.root, graph.root, "")
    _wire_flat(picture, graph)
    return picture


def _place(picture: Picture, frame: Frame, scope: Scope, prefix: str) -> None:
    """Put a box for each block of a scope into its frame, and a frame for each template."""
    for node in scope.nodes:
        path = prefix + node.name
        if isinstance(node, BlockNode):
            picture.boxes[f"node/{path}"] = node.part
            frame.boxes.append(f"node/{path}")
        else:
            _place_template(picture, frame, node, path)


def _place_template(
    picture: Picture, frame: Frame, node: TemplateNode | RepeatNode, path: str
) -> None:
    """Put the frames of a template: one for each run of equal copies, or one for every copy."""
    said, repeated = "", isinstance(node, RepeatNode)
    if isinstance(node, RepeatNode):
        said = "shared weights" if node.share else ""
        for port in node.collect:
            frame.stacks[f"stack/{path}/{port}"] = f"{node.repeat} {port} stacked"
        if picture.unfolded:
            outer = Frame(path, node.body.name, node.repeat, said)
            frame.frames.append(outer)
            for index, body in node.copies():
                copy = Frame(f"{path}.{index}", f"{path}.{index}")
                outer.frames.append(copy)
                _place(picture, copy, body, f"{copy.path}.")
            return
    for below, body, count in node.runs():
        stack = Frame(f"{path}.{below}".rstrip("."), body.name, count if repeated else None, said)
        frame.frames.append(stack)
        _place(picture, stack, body, f"{stack.path}.")


def _wire_flat(picture: Picture, graph: Graph) -> None:
    """Draw the wires of every copy.

    Masks that come from outside are said, not drawn: they go to nearly every box.
    """
    flat = flat_graph(graph)

    kinds = flat.nodes(data="kind")

    def box(vertex: str) -> str:
        if kinds[vertex] == "stack":
            return f"stack/{vertex.replace(':', '/')}"
        place = {"input": "input", "output": "output", "block": "node"}[kinds[vertex]]
        return f"{place}/{vertex.rpartition(':')[2]}"

    for source, target, wires in flat.edges(data="wires"):
        for wire in wires:
            if kinds[source] == "input" and wire["type"].kind in MASKS:
                picture.note(box(target), f"reads {wire['value']}")
            else:
                picture.wire(box(source), box(target), wire["type"])


def _wire_folded(
    picture: Picture, scope: Scope, prefix: str, inputs: Mapping[str, _Value]
) -> dict[str, _Value]:
    """Draw the wires of a scope, templates once; return who gives its outputs."""
    known = dict(inputs)
    for node in scope.nodes:
        path = prefix + node.name
        reads = {port: known[value] for port, value in node.wires.items()}
        if isinstance(node, BlockNode):
            for box, type_ in reads.values():
                picture.wire(box, f"node/{path}", type_)
            given = {port: (f"node/{path}", type_) for port, type_ in node.outputs.items()}
        else:
            given = _wire_template(picture, node, path, reads)
        known |= {f"{node.name}.{port}": value for port, value in given.items()}
    return {port: known[value] for port, value in scope.outputs.items()}


def _wire_template(
    picture: Picture, node: TemplateNode | RepeatNode, path: str, reads: dict[str, _Value]
) -> dict[str, _Value]:
    """Draw the wires of a template, a run of like copies at a time."""
    given, entered = dict[str, _Value](), dict(reads)
    carry, collect = (node.carry, node.collect) if isinstance(node, RepeatNode) else ((), ())
    for below, body, _ in node.runs():
        inner = f"{path}.{below}".rstrip(".")
        given = _wire_folded(picture, body, f"{inner}.", entered)
        entered |= {port: given[port] for port in carry}
        for port in collect:
            picture.wire(given[port][0], f"stack/{path}/{port}", given[port][1])
    stacked = {p: (f"stack/{path}/{p}", node.outputs[p]) for p in collect}
    return {**given, **stacked}
