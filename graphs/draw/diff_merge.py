"""Diff merge: the boxes, frames and wires of two graphs in one picture.

A node that both graphs have is one box; templates are drawn once for each run of equal copies in
the new graph.  `diff.py` decides how it looks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from ..diff.changes import Change
from ..diff.diff import Diff
from ..diff.text import describe
from ..ir.canonical import Json, canonical, scope_of
from ..ir.graph import BlockNode, Graph, Node, Part, RepeatNode, Scope
from ..ir.value_type import ValueType
from .patterns import segments

State = Literal["same", "added", "removed", "changed"]
Side = Literal["old", "new"]


@dataclass(slots=True)
class Box:
    """A node that is one block, in either graph or in both."""

    name: str
    """Name in DOT."""
    part: Part
    state: State
    notes: list[str]
    """The changes, one line for each."""


@dataclass(slots=True)
class Frame:
    """One use of a template, or the complete picture."""

    path: str
    title: str = ""
    copies: int | None = None
    state: State = "same"
    notes: list[str] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)


@dataclass(slots=True)
class Union:
    """Both graphs in one picture."""

    root: Frame
    wires: dict[tuple[str, str], dict[Side, list[ValueType]]] = field(default_factory=dict)
    """DOT names of the two ends to the types between them in each graph."""
    ends: dict[str, tuple[str, str, State, list[str]]] = field(default_factory=dict)
    """DOT name of each input and output to its name, type, state and notes."""


@dataclass(frozen=True, slots=True)
class _Here:
    """A scope of one graph, and the name of its template in the canonical form."""

    scope: Scope
    name: str


_Value = tuple[str, ValueType]
"""The box that outputs a value, and the type of the value."""


def unite(old: Graph, new: Graph, difference: Diff) -> Union:
    """Merge two graphs into one picture."""
    return _Uniter(old, new, difference).unite()


class _Uniter:
    """Places the nodes of both graphs, then draws the wires of each."""

    def __init__(self, old: Graph, new: Graph, difference: Diff) -> None:
        self.graphs: dict[Side, Graph] = {"old": old, "new": new}
        self.forms: dict[Side, Json] = {
            "old": canonical(old, models="templates"),
            "new": canonical(new, models="templates"),
        }
        self.changes: dict[tuple[tuple[str, str], str], list[Change]] = defaultdict(list)
        self.every = [change for change in difference.changes if not change.follows]
        for change in self.every:
            self.changes[change.scope, change.node.partition("/")[0]].append(change)
        self.union = Union(Frame(""))
        self.paths: dict[tuple[Side, str, str], str] = {}
        """Side, prefix of a scope in the picture, and node, to the node's path in the picture."""
        self.runs: dict[tuple[Side, str], list[tuple[str, Scope]]] = {}
        """Side and path of a template in the picture to the prefix and scope of its frames."""

    def unite(self) -> Union:
        """Place and wire everything."""
        heres = [_Here(self.graphs[side].root, "") for side in ("old", "new")]
        self._place(self.union.root, heres[0], heres[1], "")
        inputs = self._ends("input")
        self._ends("output")
        for side, graph in self.graphs.items():
            known = {name: (inputs[side, name], type_) for name, type_ in graph.inputs.items()}
            given = self._trace(side, graph.root, "", known)
            for name, (box, type_) in given.items():
                self._wire(side, box, f"output/{name}", type_)
        return self.union

    def _ends(self, what: Literal["input", "output"]) -> dict[tuple[Side, str], str]:
        """Add the inputs or the outputs, and return the DOT name of each."""
        names: dict[tuple[Side, str], str] = {}
        own = self.changes[("", ""), ""]
        now = {c.before: c.after for c in own if c.kind == "renamed"} if what == "input" else {}
        for side, graph in self.graphs.items():
            types = graph.inputs if what == "input" else graph.outputs
            for name, type_ in types.items():
                word = now.get(name, name) if side == "old" else name
                box = names[side, name] = f"{what}/{word}"
                known = self.union.ends.get(box)
                state: State = "removed" if side == "old" else "same" if known else "added"
                notes = [
                    text
                    for change in own
                    if change.kind in (what, "renamed") and change.name == word
                    for mark, text in describe(change)
                    if mark in "~>" and side == "new"
                ]
                self.union.ends[box] = (word, str(type_), "changed" if notes else state, notes)
        return names

    def _place(self, frame: Frame, old: _Here | None, new: _Here | None, prefix: str) -> None:
        """Place the nodes of two scopes in a frame."""
        for was, node in self._matched(old, new):
            name = node.name if node is not None else was.name if was is not None else ""
            path = prefix + name
            for side, one in (("old", was), ("new", node)):
                if one is not None:
                    self.paths[side, prefix, one.name] = path  # type: ignore[index]
            pair = (old.name if old else "", new.name if new else "")
            changes = self.changes[pair, name] if was and node else []
            alike = was is None or node is None or _is_block(was) == _is_block(node)
            apart = any(change.kind == "replaced" and change.node == name for change in changes)
            if not alike or (apart and node is not None and not _is_block(node)):
                self._place_node(frame, was, None, old, None, path, [])
                self._place_node(frame, None, node, None, new, path, [])
            else:
                self._place_node(frame, was, node, old, new, path, changes)

    def _matched(
        self, old: _Here | None, new: _Here | None
    ) -> Iterator[tuple[Node | None, Node | None]]:
        """Yield the nodes of two scopes as (old node, new node); None if there is none."""
        were = {node.name: node for node in old.scope.nodes} if old else {}
        pair = (old.name if old else "", new.name if new else "")
        kept = set()
        for node in new.scope.nodes if new else ():
            renames = [c for c in self.changes[pair, node.name] if c.kind == "renamed"]
            was = were.get(renames[0].before if renames and old else node.name)
            kept.add(was.name if was else "")
            yield was, node
        yield from ((node, None) for name, node in were.items() if name not in kept)

    def _place_node(
        self,
        frame: Frame,
        was: Node | None,
        node: Node | None,
        old: _Here | None,
        new: _Here | None,
        path: str,
        changes: list[Change],
    ) -> None:
        """Place the box of a node, or the frames of a template."""
        one = node or was
        if one is None:
            return
        state: State = "same" if was and node else "added" if node else "removed"
        wiring = all(change.kind == "rewired" for change in changes)
        if state == "same" and not wiring:
            state = "changed"
        notes = [text for change in changes for text in self._notes(change, path)]
        if isinstance(one, BlockNode):
            pair = (old.name if old else "", new.name if new else "")
            both = was is not None and node is not None
            within = [*self._within(path, pair)] if both and one.part.fill else []
            state = "changed" if within else state
            frame.boxes.append(Box(f"node/{path}", one.part, state, [*notes, *within]))
            return
        if not isinstance(one, RepeatNode):
            inner = Frame(path, one.name, None, state, notes)
            frame.frames.append(inner)
            self._place_copy(inner, (was, node), (old, new), path, 0)
            return
        before = was if isinstance(was, RepeatNode) and was is not one else None
        for number, segment in enumerate(segments(one, before)):
            outer, marks = frame, notes if number == 0 else []
            if len(segment.units) > 1:
                title = segment.words()
                outer = Frame(f"{path}.{number}+", title, segment.times, state, marks)
                frame.frames.append(outer)
                marks = []
            for unit in segment.units:
                copies = unit.copies if outer is frame or unit.copies > 1 else None
                inner = Frame(f"{path}.{unit.path}", unit.body.name, copies, state, marks)
                marks = []
                outer.frames.append(inner)
                first = re.match(r"\d+", unit.path)
                at = int(first[0]) if first else 0
                self._place_copy(inner, (was, node), (old, new), path, at)

    def _place_copy(
        self,
        frame: Frame,
        nodes: tuple[Node | None, Node | None],
        heres: tuple[_Here | None, _Here | None],
        path: str,
        index: int,
    ) -> None:
        """Place the inside of one copy of a template, which stands for those like it.

        Args:
            frame: its frame.
            nodes: the old and the new node.
            heres: their scopes.
            path: path of the node in the picture.
            index: number of the copy.
        """
        inside: list[_Here | None] = []
        sides: tuple[Side, Side] = ("old", "new")
        for side, node, here in zip(sides, nodes, heres, strict=True):
            one = self._inside(side, node, here, index)
            inside.append(one)
            if one is not None:
                self.runs.setdefault((side, path), []).append((f"{frame.path}.", one.scope))
        self._place(frame, inside[0], inside[1], f"{frame.path}.")

    def _inside(self, side: str, node: Node | None, here: _Here | None, index: int) -> _Here | None:
        """Return the inside of one copy of a template."""
        if node is None or here is None or isinstance(node, BlockNode):
            return None
        form = self.forms["old" if side == "old" else "new"]
        record = scope_of(form, here.name)["nodes"][node.name]
        name = record.get("instead", {}).get(str(index), record.get("block", record.get("use")))
        body = node.instead.get(index, node.body) if isinstance(node, RepeatNode) else node.body
        return _Here(body, name)

    def _notes(self, change: Change, path: str) -> Iterator[str]:
        """Yield the notes of a box or a frame on a change; changed wires are drawn instead."""
        if change.kind == "rewired":
            return
        slot = change.node.partition("/")[2]
        for _, text in describe(change):
            copy = change.name if change.kind == "template" and change.name else ""
            yield f"{slot or copy}: {text}" if (slot or copy) and path else text

    def _within(self, path: str, pair: tuple[str, str]) -> Iterator[str]:
        """Yield the changes inside templates in a node's slots, which are not drawn."""
        place = re.sub(r"\.\d[\d,.-]*[,-]\d+\.", ".*.", path) + "/"
        for change in self.every:
            at = next((each for each in (change.path, *change.also) if each.startswith(place)), "")
            if at and change.scope != pair:
                for _, text in describe(change):
                    yield f"{at.removeprefix(place)}: {text}"

    def _trace(
        self, side: Side, scope: Scope, prefix: str, inputs: dict[str, _Value]
    ) -> dict[str, _Value]:
        """Draw the wires of a scope of one graph, and return the boxes of its outputs."""
        known = dict(inputs)
        for node in scope.nodes:
            path = self.paths[side, prefix, node.name]
            reads = {port: known[value] for port, value in node.wires.items()}
            if isinstance(node, BlockNode):
                for box, type_ in reads.values():
                    self._wire(side, box, f"node/{path}", type_)
                given = {port: (f"node/{path}", type_) for port, type_ in node.outputs.items()}
            else:
                entered = dict(reads)
                carry = node.carry if isinstance(node, RepeatNode) else ()
                for inner, body in self.runs[side, path]:
                    given = self._trace(side, body, inner, entered)
                    entered |= {port: given[port] for port in carry}
            known |= {f"{node.name}.{port}": given[port] for port in node.outputs}
        return {port: known[value] for port, value in scope.outputs.items()}

    def _wire(self, side: Side, source: str, target: str, type_: ValueType) -> None:
        types = self.union.wires.setdefault((source, target), {}).setdefault(side, [])
        if type_ not in types:
            types.append(type_)


def _is_block(node: Node) -> bool:
    return isinstance(node, BlockNode)
