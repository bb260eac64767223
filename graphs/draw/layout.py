"""Layout: which boxes, frames and wires a diagram has.

`diagram.py` decides how everything looks; `inside.py` draws the operations inside one block.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..ir.graph import (
    BlockNode,
    Filling,
    Graph,
    Node,
    Part,
    RepeatNode,
    Scope,
    TemplateNode,
    TemplatePart,
)
from ..ir.traverse import find_weight
from ..ir.value_type import ValueType
from .labels import SHARES, BoxText, bands_of, heads_of, is_closed, words_of, words_of_closed
from .patterns import covers, segments, slot_templates
from .picture import FROZEN, MASKS, NO_FOLDS, Box, Folds, Frame, Picture

Value = tuple[str, ValueType]
"""The box that outputs a value, and the type of the value."""


@dataclass(frozen=True, slots=True)
class _Inside:
    """One frame of a template: for some of its copies."""

    path: str
    body: Scope
    frame: Frame
    copies: int = 1
    """Number of copies that it stands for."""


def lay_out_graph(
    graph: Graph, *, unfolded: bool = False, residuals: bool = False, folds: Folds = NO_FOLDS
) -> Picture:
    """Return the picture of a graph.

    Args:
        graph: the graph to draw.
        unfolded: whether every copy is drawn, instead of each template once.
        residuals: whether residual paths are arrows around the boxes.
        folds: nodes that are drawn otherwise than the others.
    """
    return _Layout(graph.name, unfolded=unfolded, residuals=residuals, folds=folds).of_graph(graph)


def lay_out(scope: Scope, *, unfolded: bool = False, residuals: bool = False) -> Picture:
    """Return the picture of the inside of a template; arguments as of `lay_out_graph`."""
    return _Layout(scope.name, unfolded=unfolded, residuals=residuals).of_scope(scope)


class _Layout:
    """Places the boxes of a picture, then draws its wires."""

    def __init__(
        self, name: str, *, unfolded: bool, residuals: bool, folds: Folds = NO_FOLDS
    ) -> None:
        self.picture = Picture(Frame("", name), unfolded=unfolded)
        self.unfolded, self.residuals, self.folds = unfolded, residuals, folds
        self.insides: dict[str, list[_Inside]] = {}
        """Path of a template to its frames."""
        self.around: dict[str, Frame] = {}
        """Prefix of the paths in a scope to the frame of the scope."""

    def of_graph(self, graph: Graph) -> Picture:
        """Place and wire a graph."""
        picture = self.of_scope(graph.root)
        self._note_shared(graph)
        return picture

    def of_scope(self, scope: Scope) -> Picture:
        """Place and wire a scope."""
        picture = self.picture
        for name, type_ in scope.inputs.items():
            picture.add_end(f"input/{name}", type_)
        for name, type_ in scope.gives().items():
            picture.add_end(f"output/{name}", type_)
        self._place(picture.root, scope, "")
        inputs = {name: (f"input/{name}", type_) for name, type_ in scope.inputs.items()}
        for name, (box, type_) in self._wire(scope, "", inputs).items():
            picture.wire(box, f"output/{name}", type_)
        return picture

    def _place(self, frame: Frame, scope: Scope, prefix: str) -> None:
        """Place a box for each block of a scope in its frame, and a frame for each template."""
        self.around[prefix] = frame
        for node in scope.nodes:
            path = prefix + node.name
            if self._is_closed(node, path):
                box = Box(words=words_of_closed(node), tooltip=path, frozen=node.frozen)
                self.picture.add(frame, f"node/{path}", box)
            elif isinstance(node, BlockNode):
                self._place_block(frame, node, path)
            else:
                self._place_template(frame, node, path)

    def _is_closed(self, node: Node, path: str) -> bool:
        if path in self.folds.opened:
            return False
        return not self.unfolded and (is_closed(node) or path in self.folds.closed)

    def _place_block(self, frame: Frame, node: BlockNode, path: str) -> None:
        """Place the box of a block, or the boxes of the parts of its residual path."""
        part = node.part
        notes = [f"{SHARES} {node.shares}"] if node.shares else []
        if self._is_open(part):
            boxes = self.picture.boxes
            before = len(boxes)
            self._place_open(frame, part, path)
            for name in itertools.islice(reversed(boxes), len(boxes) - before):
                boxes[name].frozen = node.frozen
                if name.startswith("band/"):
                    boxes[name].notes, notes = notes, []
            return
        words = words_of(part)
        box = Box(
            words=words,
            notes=notes,
            frozen=node.frozen,
            tooltip=f"{path}: {part.key}",
            block=part.block.name,
        )
        self.picture.add(frame, f"node/{path}", box)
        self._place_slots(frame, box, part, path)

    def _is_open(self, part: Part) -> bool:
        """Return whether the residual path around a block is drawn as boxes of its own."""
        if part.block.bands is None:
            return False
        templates = any(isinstance(filling, TemplatePart) for filling in part.fill.values())
        return self.residuals or (self.unfolded and templates)

    def _place_open(self, frame: Frame, part: Part, path: str) -> None:
        """Place what a block with a residual path consists of, from the bottom to the top."""
        below, above = bands_of(part)
        if self.residuals:
            self.picture.add(frame, f"join/{path}", Box(words=_NONE, shape="join"))
        for index, text in enumerate(below):
            self._place_band(frame, f"band/{path}/{index}", text, part, path)
        for slot, filling in part.fill.items():
            self._place_filling(frame, filling, f"{path}/{slot}")
        for index, text in enumerate(above, start=len(below)):
            self._place_band(frame, f"band/{path}/{index}", text, part, path)

    def _place_band(self, frame: Frame, name: str, text: str, part: Part, path: str) -> None:
        box = Box(words=BoxText(text, "", "norm"), tooltip=f"{path}: {part.key}")
        self.picture.add(frame, name, box)

    def _place_filling(self, frame: Frame, filling: Filling, path: str) -> None:
        """Place what fills a slot of a block with a residual path."""
        if isinstance(filling, TemplatePart) and (self.unfolded or self.residuals):
            inner = Frame(path, filling.key)
            frame.frames.append(inner)
            self._place(inner, filling.body, f"{path}.")
            self.insides[path] = [_Inside(path, filling.body, inner)]
            return
        box = Box(words=words_of(filling), tooltip=f"{path}: {filling.key}")
        self.picture.add(frame, f"node/{path}", box)
        if isinstance(filling, Part):
            self._place_slots(frame, box, filling, path)

    def _place_slots(self, frame: Frame, box: Box, part: Part, path: str) -> None:
        """Where every copy is drawn, list what fills slots, and draw the templates among it."""
        if not self.unfolded:
            return
        box.lines = [f"{slot.replace('_', ' ')}: {words.text}" for slot, words in box.words.parts]
        for below, entries, template in slot_templates(part, path):
            slot = below.rpartition("/")[2]
            inner = Frame(below, f"{slot}: {template.key}")
            frame.frames.append(inner)
            for port in entries:
                name = f"entry/{below}/{port}"
                self.picture.add(inner, name, Box(words=BoxText(port, "", "other"), shape="text"))
            self._place(inner, template.body, f"{below}.")

    def _place_template(self, frame: Frame, node: TemplateNode | RepeatNode, path: str) -> None:
        """Place the frames of a template: one for equal copies, or one for every copy."""
        note, insides = "", self.insides.setdefault(path, [])
        if node.shares:
            note = f"{SHARES} {node.shares}"
        elif node.frozen:
            note = FROZEN
        if isinstance(node, TemplateNode):
            inner = Frame(path, node.body.name, None, note)
            frame.frames.append(inner)
            self._place(inner, node.body, f"{path}.")
            insides.append(_Inside(path, node.body, inner))
            return
        note = note or ("shared weights" if node.share else "")
        for port in node.collect:
            words = BoxText(f"{node.repeat} {port.replace('_', ' ')} stacked", "", "other")
            self.picture.add(frame, f"stack/{path}/{port}", Box(words=words, shape="stack"))
        if self.unfolded or path in self.folds.opened:
            outer = Frame(path, node.body.name, node.repeat, note)
            frame.frames.append(outer)
            for index, body in node.copies():
                copy = Frame(f"{path}.{index}", f"{path}.{index}")
                outer.frames.append(copy)
                self._place(copy, body, f"{copy.path}.")
                insides.append(_Inside(copy.path, body, copy))
            return
        for number, segment in enumerate(segments(node)):
            around = frame
            if len(segment.units) > 1:
                around = Frame(f"{path}.{number}+", "", segment.times, note, segment.words())
                frame.frames.append(around)
            for unit in segment.units:
                alone = around is frame
                copies = unit.copies if alone or unit.copies > 1 else None
                inner_path = f"{path}.{unit.path}"
                inner = Frame(inner_path, unit.body.name, copies, note if alone else "")
                around.frames.append(inner)
                self._place(inner, unit.body, f"{inner_path}.")
                count = unit.copies * segment.times
                insides.append(_Inside(inner_path, unit.body, inner, count))

    def _wire(self, scope: Scope, prefix: str, inputs: Mapping[str, Value]) -> dict[str, Value]:
        """Draw the wires of a scope, and return the boxes of its outputs."""
        values = dict(inputs)
        for node in scope.nodes:
            path = prefix + node.name
            reads = {port: values[value] for port, value in node.wires.items()}
            if self._is_closed(node, path):
                for value in reads.values():
                    self._connect(value, f"node/{path}")
                outputs = {port: (f"node/{path}", type_) for port, type_ in node.outputs.items()}
            elif isinstance(node, BlockNode):
                outputs = self._wire_block(node, path, reads)
            else:
                outputs = self._wire_template(node, path, reads)
                outputs = (
                    outputs if self.unfolded else self._leave(outputs, scope, node.name, prefix)
                )
            values |= {f"{node.name}.{port}": value for port, value in outputs.items()}
        return {port: values[value] for port, value in scope.outputs.items()}

    def _connect(self, value: Value, target: str) -> None:
        """Draw one wire.

        Where every copy is drawn, masks among the inputs are notes in the boxes instead: they go
        to nearly every box.
        """
        source, type_ = value
        mask = source.startswith("input/") and type_.kind in MASKS
        if self.unfolded and mask and target in self.picture.boxes:
            self.picture.note(target, f"reads {source.removeprefix('input/')}")
            return
        self.picture.wire(source, target, type_)

    def _read(self, part: Filling, reads: Mapping[str, Value], box: str) -> None:
        """Draw the wires that end at the box of a block."""
        for port, value in reads.items():
            self._connect(value, box)
            if (heads := heads_of(part, port, reads)) > 1:
                self.picture.heads[value[0], box] = heads

    def _wire_block(
        self, node: BlockNode, path: str, reads: Mapping[str, Value]
    ) -> dict[str, Value]:
        """Draw the wires of a block."""
        part, box = node.part, f"node/{path}"
        if self._is_open(part):
            box = self._wire_open(part, path, reads)
        else:
            self._read(part, reads, box)
            self._wire_slots(part, path, reads)
        return {port: (box, type_) for port, type_ in node.outputs.items()}

    def _wire_open(self, part: Part, path: str, reads: Mapping[str, Value]) -> str:
        """Draw the wires of a residual path, and return its last box."""
        below, above = bands_of(part)
        first = part.signature.inputs[0].name
        value = start = reads[first]
        chain = [f"join/{path}"] if self.residuals else []
        for box in [*chain, *(f"band/{path}/{index}" for index in range(len(below)))]:
            self._connect(value, box)
            value = (box, value[1])
        ends = []
        for slot, filling in part.fill.items():
            entries = {part.signature.slot(slot).input.name: value}
            entries |= {port: reads[port] for port in part.slot_ports(slot) if port in reads}
            ends.append(self._wire_filling(filling, f"{path}/{slot}", entries))
        for index in range(len(below), len(below) + len(above)):
            for end in ends:
                self._connect(end, f"band/{path}/{index}")
            ends = [(f"band/{path}/{index}", start[1])]
        if self.residuals:
            self.picture.residuals.append((f"join/{path}", ends[0][0]))
        return ends[0][0]

    def _wire_filling(self, filling: Filling, path: str, reads: Mapping[str, Value]) -> Value:
        """Draw the wires of what fills a slot, and return its output."""
        if isinstance(filling, TemplatePart) and (self.unfolded or self.residuals):
            [inside] = self.insides[path]
            entered = self._enter(inside, reads, ())
            return next(iter(self._wire(filling.body, f"{path}.", entered).values()))
        self._read(filling, reads, f"node/{path}")
        if isinstance(filling, Part):
            self._wire_slots(filling, path, reads)
        return f"node/{path}", next(iter(filling.outputs.values()))

    def _wire_slots(self, part: Part, path: str, reads: Mapping[str, Value]) -> None:
        """Draw the wires of the templates in slots, from texts and to the box of the block."""
        if not self.unfolded:
            return
        for below, entries, template in slot_templates(part, path):
            inputs = {
                port: (f"entry/{below}/{port}", type_) if port in entries else reads[port]
                for port, type_ in template.inputs.items()
            }
            for end, type_ in self._wire(template.body, f"{below}.", inputs).values():
                self.picture.wire(end, f"node/{path}", type_)

    def _wire_template(
        self, node: TemplateNode | RepeatNode, path: str, reads: dict[str, Value]
    ) -> dict[str, Value]:
        """Draw the wires of a template, once for each of its frames."""
        outputs, entered = dict[str, Value](), dict(reads)
        carry, collect = (node.carry, node.collect) if isinstance(node, RepeatNode) else ((), ())
        for inside in self.insides[path]:
            outputs = self._wire(
                inside.body, f"{inside.path}.", self._enter(inside, entered, carry)
            )
            for port in carry:
                entry = f"entry/{inside.path}/{port}"
                if entry in self.picture.boxes and outputs[port][0] != entry:
                    self.picture.loops.append((outputs[port][0], entry))
            entered |= {port: outputs[port] for port in carry}
            for port in collect:
                self.picture.wire(outputs[port][0], f"stack/{path}/{port}", outputs[port][1])
        stacked = {p: (f"stack/{path}/{p}", node.outputs[p]) for p in collect}
        return {**outputs, **stacked}

    def _enter(
        self, inside: _Inside, inputs: Mapping[str, Value], carry: tuple[str, ...]
    ) -> dict[str, Value]:
        """Draw how values enter a frame, and return their boxes.

        Values that enter a repeat in the same column, of which one is carried, are named; a wire
        that several boxes read branches inside the frame.
        """
        thick = {port: value for port, value in inputs.items() if value[1].kind not in MASKS}
        columns = {port: self.picture.columns.get(box, box) for port, (box, _) in thick.items()}
        often = Counter(columns.values())
        alike = {columns[port] for port in carry if port in thick and often[columns[port]] > 1}
        main = next(iter(columns.values()), "")
        entered = dict(inputs)
        for port, (source, type_) in thick.items():
            if not self.unfolded and columns[port] in alike:
                shape, text = ("carried", "carried") if port in carry else ("constant", "constant")
                words = BoxText(f"{port.replace('_', ' ')}: {text}", "", "other")
                box = Box(words=words, shape=shape)  # type: ignore[arg-type]
                name = f"entry/{inside.path}/{port}"
            elif columns[port] == main and _readers(inside.body, port) > 1:
                box, name = Box(words=_NONE, shape="join"), f"join/{inside.path}/{port}"
            else:
                continue
            self.picture.add(inside.frame, name, box)
            self.picture.wire(source, name, type_)
            entered[port] = (name, type_)
        return entered

    def _leave(
        self, outputs: Mapping[str, Value], scope: Scope, name: str, prefix: str
    ) -> dict[str, Value]:
        """Draw how values leave a frame: one that several boxes read branches above it."""
        exits = dict(outputs)
        around = self.around.get(prefix, self.picture.root)
        for port, (source, type_) in outputs.items():
            value, point = f"{name}.{port}", f"exit/{prefix}{name}/{port}"
            ends = [*scope.outputs.values()].count(value) + _readers(scope, value)
            if ends > 1 and type_.kind not in MASKS and not source.startswith("stack/"):
                self.picture.add(around, point, Box(words=_NONE, shape="join"))
                self.picture.wire(source, point, type_)
                exits[port] = (point, type_)
        return exits

    def _note_shared(self, graph: Graph) -> None:
        """Note on boxes which weights they share; if only some of its copies do, which."""
        for index, group in enumerate(graph.ties, start=1):
            words = "shared weight" + (f" {index}" if len(graph.ties) > 1 else "")
            copies: dict[str, dict[str, int]] = {}
            for weight in group:
                location = find_weight(graph.root, weight)
                for path, number, count in self._drawn(location.path.split("."), ""):
                    slot = location.line.partition("/")[2].partition("/")[0].partition(".")[0]
                    for box in (f"node/{path}", f"node/{path}/{slot}"):
                        if box in self.picture.boxes:
                            copies.setdefault(box, {})[number] = count
            for box, numbers in copies.items():
                some = len(numbers) < next(iter(numbers.values()))
                kind = "copy" if len(numbers) == 1 else "copies"
                where = f" of {kind} {' and '.join(numbers)}" if some else ""
                self.picture.note(box, f"{words}{where}")

    def _drawn(self, names: list[str], prefix: str) -> Iterator[tuple[str, str, int]]:
        """Yield where the picture shows a node, given its path in pieces.

        Yields:
            The path in the picture, the number of the copy, and how many copies the box stands for.
        """
        path = prefix + names[0]
        insides = self.insides.get(path)
        if len(names) == 1 or insides is None:
            yield path, "", 1
            return
        for inside in insides:
            numbered = names[1].isdecimal()
            if numbered and not covers(inside.path.removeprefix(f"{path}."), int(names[1])):
                continue
            for drawn, number, count in self._drawn(names[1 + numbered :], f"{inside.path}."):
                numbers = ".".join(filter(None, (names[1] if numbered else "", number)))
                yield drawn, numbers, count * (inside.copies if numbered else 1)


def _readers(scope: Scope, port: str) -> int:
    """Return how many nodes of a scope read an input."""
    return sum(port in node.wires.values() for node in scope.nodes)


_NONE = BoxText("", "", "other")
