"""Layout: the boxes, frames and wires of a diagram, before they are written as DOT.

A DOT name is `node/`, `stack/`, `input/` or `output/`, followed by the path in the graph.
`diagram.py` decides how everything looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..ir.flat import flat_graph
from ..ir.graph import BlockNode, Graph, Node, Part, RepeatNode, Scope, TemplateNode
from ..ir.traverse import holds_model
from ..ir.value_type import ValueType
from .labels import count_words

MASKS = frozenset({"mask", "bias", "len", "pos"})
"""Kinds of values that mark positions, such as masks; their wires are thin."""

FROZEN = "\N{SNOWFLAKE} frozen"
"""Note on what training leaves as it is."""
_Value = tuple[str, ValueType]
"""The box that outputs a value, and the type of the value."""


@dataclass(slots=True)
class Frame:
    """One use of a template, or the complete picture."""

    path: str
    title: str
    copies: int | None = None
    note: str = ""
    """Text below the number of copies."""
    stacks: dict[str, str] = field(default_factory=dict)
    """DOT names of the collected outputs directly in it, to their labels."""
    boxes: list[str] = field(default_factory=list)
    """DOT names of the boxes directly in it."""
    frames: list[Frame] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Closed:
    """A box for a module whose inside is not drawn: a model, or another call of a module."""

    title: str
    detail: str
    family: str


@dataclass(slots=True)
class Picture:
    """Boxes, frames and wires, before they are written as DOT."""

    root: Frame
    unfolded: bool = False
    """Whether every copy is drawn."""
    notes: dict[str, list[str]] = field(default_factory=dict)
    """DOT name of a box to the notes on its second line, after the params."""
    boxes: dict[str, Part | Closed] = field(default_factory=dict)
    """DOT name of a box to its block, or to the text of a closed box."""
    frozen: set[str] = field(default_factory=set)
    """DOT names of the boxes, and paths of the frames, whose weights do not train."""
    wires: dict[tuple[str, str], list[ValueType]] = field(default_factory=dict)
    """DOT names of the two ends to the types between them."""

    def wire(self, source: str, target: str, type_: ValueType) -> None:
        """Draw a wire; wires of the same type between the same boxes are one line."""
        types = self.wires.setdefault((source, target), [])
        if type_ not in types:
            types.append(type_)

    def note(self, box: str, text: str) -> None:
        """Add a note to the second line of a box, once."""
        notes = self.notes.setdefault(box, [])
        if text not in notes:
            notes.append(text)


def fold(graph: Graph) -> Picture:
    """Return a picture that shows each template once."""
    picture = Picture(Frame("", graph.name))
    _place(picture, picture.root, graph.root, "")
    inputs = {name: (f"input/{name}", type_) for name, type_ in graph.inputs.items()}
    for name, (box, type_) in _wire_folded(picture, graph.root, "", inputs).items():
        picture.wire(box, f"output/{name}", type_)
    return picture


def unfold(graph: Graph) -> Picture:
    """Return a picture that shows every copy."""
    picture = Picture(Frame("", graph.name), unfolded=True)
    _place(picture, picture.root, graph.root, "")
    _wire_flat(picture, graph)
    return picture


def _place(picture: Picture, frame: Frame, scope: Scope, prefix: str) -> None:
    """Place a box for each block of a scope in its frame, and a frame for each template."""
    for node in scope.nodes:
        path = prefix + node.name
        box = f"node/{path}"
        if node.frozen:
            picture.frozen.add(box)
        if not picture.unfolded and is_closed(node):
            picture.boxes[box] = _closed(node)
            frame.boxes.append(box)
        elif isinstance(node, BlockNode):
            picture.boxes[box] = node.part
            frame.boxes.append(box)
            if node.shares:
                picture.note(box, f"shares the weights of {node.shares}")
        else:
            _place_template(picture, frame, node, path)


def is_closed(node: Node) -> bool:
    """Return whether a folded picture shows a node as one box: a model, or a shared template."""
    return holds_model(node) or (bool(node.shares) and not isinstance(node, BlockNode))


def _closed(node: Node) -> Closed:
    """Return the text of a closed box."""
    title = node.name.replace("_", " ")
    if node.shares:
        return Closed(title, f"shares the weights of {node.shares}", "model")
    spec = node.model.name if isinstance(node, TemplateNode) and node.model else ""
    return Closed(title, f"{spec}, {count_words(node.parameters())} parameters", "model")


def _place_template(
    picture: Picture, frame: Frame, node: TemplateNode | RepeatNode, path: str
) -> None:
    """Place the frames of a template: one for each run of equal copies, or one for every copy."""
    note, repeated = "", isinstance(node, RepeatNode)
    if node.shares:
        note = f"shares the weights of {node.shares}"
    elif node.frozen:
        note = FROZEN
    if isinstance(node, RepeatNode):
        note = note or ("shared weights" if node.share else "")
        for port in node.collect:
            frame.stacks[f"stack/{path}/{port}"] = f"{node.repeat} {port} stacked"
        if picture.unfolded:
            outer = Frame(path, node.body.name, node.repeat, note)
            frame.frames.append(outer)
            for index, body in node.copies():
                copy = Frame(f"{path}.{index}", f"{path}.{index}")
                outer.frames.append(copy)
                _place(picture, copy, body, f"{copy.path}.")
            return
    for below, body, count in node.runs():
        stack = Frame(f"{path}.{below}".rstrip("."), body.name, count if repeated else None, note)
        frame.frames.append(stack)
        _place(picture, stack, body, f"{stack.path}.")


def _wire_flat(picture: Picture, graph: Graph) -> None:
    """Draw the wires of every copy.

    Masks among the inputs are notes in the boxes instead of wires: they go to nearly every box.
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
    """Draw the wires of a scope, templates once, and return the boxes of its outputs."""
    known = dict(inputs)
    for node in scope.nodes:
        path = prefix + node.name
        reads = {port: known[value] for port, value in node.wires.items()}
        if isinstance(node, BlockNode) or is_closed(node):
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
    """Draw the wires of a template, once for each run of equal copies."""
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
