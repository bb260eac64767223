"""Diff diagram: two graphs in one picture, with added parts green, removed red, changed amber.

Both graphs are merged into one outline, which is drawn.  Every text passes through `plain` or
`markup`.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import graphviz

from ..diff.changes import Change
from ..diff.diff import GraphDiff
from ..diff.text import describe
from ..ir.canonical import Json, canonical, scope_of
from ..ir.graph import BlockNode, Graph, Node, Part, RepeatNode, Scope
from ..ir.value_type import ValueType
from .labels import DETAIL, DIM, INK, LONGEST, markup, quoted, short, words_of, wrapped
from .patterns import segments
from .picture import MASKS
from .render import write_picture
from .writer import FONT, FRAME_LINE, WIDTH

State = Literal["same", "added", "removed", "changed"]
Side = Literal["old", "new"]


@dataclass(slots=True)
class DiffBox:
    """A node that is one block, in either graph or in both."""

    name: str
    """Name in DOT."""
    part: Part
    state: State
    notes: list[str]
    """The changes, one line for each."""


@dataclass(slots=True)
class DiffFrame:
    """One use of a template, or the complete picture."""

    path: str
    title: str = ""
    copies: int | None = None
    state: State = "same"
    notes: list[str] = field(default_factory=list)
    boxes: list[DiffBox] = field(default_factory=list)
    frames: list[DiffFrame] = field(default_factory=list)


@dataclass(slots=True)
class Union:
    """Both graphs in one picture."""

    root: DiffFrame
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


def unite(old: Graph, new: Graph, difference: GraphDiff) -> Union:
    """Merge two graphs into one picture."""
    return _Uniter(old, new, difference).unite()


class _Uniter:
    """Places the nodes of both graphs, then draws the wires of each."""

    def __init__(self, old: Graph, new: Graph, difference: GraphDiff) -> None:
        self.graphs: dict[Side, Graph] = {"old": old, "new": new}
        self.forms: dict[Side, Json] = {
            "old": canonical(old, models="templates"),
            "new": canonical(new, models="templates"),
        }
        self.changes: dict[tuple[tuple[str, str], str], list[Change]] = defaultdict(list)
        self.every = [change for change in difference.changes if not change.follows]
        for change in self.every:
            self.changes[change.scope, change.node.partition("/")[0]].append(change)
        self.union = Union(DiffFrame(""))
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
            values = {name: (inputs[side, name], type_) for name, type_ in graph.inputs.items()}
            outputs = self._trace(side, graph.root, "", values)
            for name, (box, type_) in outputs.items():
                self._wire(side, box, f"output/{name}", type_)
        return self.union

    def _ends(self, what: Literal["input", "output"]) -> dict[tuple[Side, str], str]:
        """Add the inputs or the outputs, and return the DOT name of each."""
        names: dict[tuple[Side, str], str] = {}
        end_changes = self.changes[("", ""), ""]
        now = (
            {c.before: c.after for c in end_changes if c.kind == "renamed"}
            if what == "input"
            else {}
        )
        for side, graph in self.graphs.items():
            types = graph.inputs if what == "input" else graph.outputs
            for name, type_ in types.items():
                word = now.get(name, name) if side == "old" else name
                box = names[side, name] = f"{what}/{word}"
                existing = self.union.ends.get(box)
                state: State = "removed" if side == "old" else "same" if existing else "added"
                notes = [
                    text
                    for change in end_changes
                    if change.kind in (what, "renamed") and change.name == word
                    for mark, text in describe(change)
                    if mark in "~>" and side == "new"
                ]
                self.union.ends[box] = (word, str(type_), "changed" if notes else state, notes)
        return names

    def _place(self, frame: DiffFrame, old: _Here | None, new: _Here | None, prefix: str) -> None:
        """Place the nodes of two scopes in a frame."""
        for was, node in self._matched(old, new):
            name = node.name if node is not None else was.name if was is not None else ""
            path = prefix + name
            for side, version in (("old", was), ("new", node)):
                if version is not None:
                    self.paths[side, prefix, version.name] = path  # type: ignore[index]
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
        matched = set()
        for node in new.scope.nodes if new else ():
            renames = [c for c in self.changes[pair, node.name] if c.kind == "renamed"]
            was = were.get(renames[0].before if renames and old else node.name)
            matched.add(was.name if was else "")
            yield was, node
        yield from ((node, None) for name, node in were.items() if name not in matched)

    def _place_node(
        self,
        frame: DiffFrame,
        was: Node | None,
        node: Node | None,
        old: _Here | None,
        new: _Here | None,
        path: str,
        changes: list[Change],
    ) -> None:
        """Place the box of a node, or the frames of a template."""
        present = node or was
        if present is None:
            return
        state: State = "same" if was and node else "added" if node else "removed"
        wiring = all(change.kind == "rewired" for change in changes)
        if state == "same" and not wiring:
            state = "changed"
        notes = [text for change in changes for text in self._notes(change, path)]
        if isinstance(present, BlockNode):
            pair = (old.name if old else "", new.name if new else "")
            is_common = was is not None and node is not None
            within = [*self._within(path, pair)] if is_common and present.part.fill else []
            state = "changed" if within else state
            frame.boxes.append(DiffBox(f"node/{path}", present.part, state, [*notes, *within]))
            return
        if not isinstance(present, RepeatNode):
            inner = DiffFrame(path, present.name, None, state, notes)
            frame.frames.append(inner)
            self._place_copy(inner, (was, node), (old, new), path, 0)
            return
        before = was if isinstance(was, RepeatNode) and was is not present else None
        for number, segment in enumerate(segments(present, before)):
            outer, marks = frame, notes if number == 0 else []
            if len(segment.units) > 1:
                title = segment.words()
                outer = DiffFrame(f"{path}.{number}+", title, segment.times, state, marks)
                frame.frames.append(outer)
                marks = []
            for unit in segment.units:
                copies = unit.copies if outer is frame or unit.copies > 1 else None
                inner = DiffFrame(f"{path}.{unit.path}", unit.body.name, copies, state, marks)
                marks = []
                outer.frames.append(inner)
                first = re.match(r"\d+", unit.path)
                at = int(first[0]) if first else 0
                self._place_copy(inner, (was, node), (old, new), path, at)

    def _place_copy(
        self,
        frame: DiffFrame,
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
        for side, node, outer in zip(sides, nodes, heres, strict=True):
            inner = self._inside(side, node, outer, index)
            inside.append(inner)
            if inner is not None:
                self.runs.setdefault((side, path), []).append((f"{frame.path}.", inner.scope))
        self._place(frame, inside[0], inside[1], f"{frame.path}.")

    def _inside(
        self, side: str, node: Node | None, outer: _Here | None, index: int
    ) -> _Here | None:
        """Return the inside of one copy of a template."""
        if node is None or outer is None or isinstance(node, BlockNode):
            return None
        form = self.forms["old" if side == "old" else "new"]
        record = scope_of(form, outer.name)["nodes"][node.name]
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
        prefix = re.sub(r"\.\d[\d,.-]*[,-]\d+\.", ".*.", path) + "/"
        for change in self.every:
            at = next(
                (
                    candidate
                    for candidate in (change.path, *change.also)
                    if candidate.startswith(prefix)
                ),
                "",
            )
            if at and change.scope != pair:
                for _, text in describe(change):
                    yield f"{at.removeprefix(prefix)}: {text}"

    def _trace(
        self, side: Side, scope: Scope, prefix: str, inputs: dict[str, _Value]
    ) -> dict[str, _Value]:
        """Draw the wires of a scope of one graph, and return the boxes of its outputs."""
        values = dict(inputs)
        for node in scope.nodes:
            path = self.paths[side, prefix, node.name]
            reads = {port: values[value] for port, value in node.wires.items()}
            if isinstance(node, BlockNode):
                for box, type_ in reads.values():
                    self._wire(side, box, f"node/{path}", type_)
                outputs = {port: (f"node/{path}", type_) for port, type_ in node.outputs.items()}
            else:
                entered = dict(reads)
                carry = node.carry if isinstance(node, RepeatNode) else ()
                for inner, body in self.runs[side, path]:
                    outputs = self._trace(side, body, inner, entered)
                    entered |= {port: outputs[port] for port in carry}
            values |= {f"{node.name}.{port}": outputs[port] for port in node.outputs}
        return {port: values[value] for port, value in scope.outputs.items()}

    def _wire(self, side: Side, source: str, target: str, type_: ValueType) -> None:
        types = self.union.wires.setdefault((source, target), {}).setdefault(side, [])
        if type_ not in types:
            types.append(type_)


def _is_block(node: Node) -> bool:
    return isinstance(node, BlockNode)


FILL: dict[State, str] = {
    "same": "#f3f4f6",
    "added": "#cdeccf",
    "removed": "#fbdedd",
    "changed": "#fde8ae",
}
"""Color of a box."""
LINE: dict[State, str] = {
    "same": "#b3b8c0",
    "added": "#1e7d34",
    "removed": "#c0302b",
    "changed": "#a86f00",
}
"""Color of a wire, and of the line around a box."""
PLACE: dict[State, str] = {
    "same": "#fafafb",
    "added": "#eef8ef",
    "removed": "#fdf3f2",
    "changed": "#fdf9ed",
}
"""Color of a frame."""
LEGEND: dict[State, str] = {
    "added": "added",
    "removed": "removed",
    "changed": "changed",
    "same": "as before",
}
"""Meaning of each color, as written in the picture."""
_MOST_NOTES = 6
"""Maximum number of changes that one box lists."""


def draw_diff(old: Graph, new: Graph, difference: GraphDiff, out: Path) -> Path:
    """Write the diagram of a diff to a file; the suffix selects the format.

    Raises:
        InputError: the suffix is unknown, `dot` is not installed, or the file cannot be
            written.
    """
    return write_picture(diff_picture(old, new, difference), out)


def diff_picture(old: Graph, new: Graph, difference: GraphDiff) -> graphviz.Digraph:
    """Return the diagram of a diff; equal diffs give equal DOT text."""
    union = unite(old, new, difference)
    dot = graphviz.Digraph(name=quoted(f"{old.name} -> {new.name}"))
    look = {"fontname": FONT, "fontcolor": INK}
    dot.attr(
        "graph",
        rankdir="BT",
        label=_heading(difference),
        labelloc="t",
        bgcolor="white",
        nodesep="0.45",
        ranksep="0.42",
        pad="0.35",
        newrank="true",
        **look,
    )
    dot.attr("node", shape="plain", fontsize="12.5", **look)
    dot.attr("edge", arrowsize="0.7", **look)
    _write_ends(dot, union, "input", "min")
    _write_frame(dot, union.root)
    _write_ends(dot, union, "output", "max")
    for box, column in _columns(union).items():
        dot.node(box, group=column)
    for (source, target), sides in union.wires.items():
        state: State = "same" if len(sides) > 1 else "added" if "new" in sides else "removed"
        dot.edge(source, target, **_wire_look(source, target, state, [*sides.values()]))
    return dot


def _columns(union: Union) -> dict[str, str]:
    """Return the input above which each box is placed: that of its first wire in the new graph."""
    columns: dict[str, str] = {}
    for (source, target), sides in union.wires.items():
        types = sides.get("new", [])
        if target not in columns and any(type_.kind not in MASKS for type_ in types):
            columns[target] = columns.setdefault(source, source)
    return columns


def _wire_look(
    source: str, target: str, state: State, sides: list[list[ValueType]]
) -> dict[str, str]:
    """Return the style of a wire: masks thin, removed wires dashed."""
    thin = all(type_.kind in MASKS for types in sides for type_ in types)
    width = {"same": 1.1, "added": 2.0, "removed": 1.6, "changed": 1.1}[state]
    look = {"color": LINE[state], "penwidth": f"{width * (0.6 if thin else 1):.2f}"}
    look["style"] = "dashed" if state == "removed" or thin else "solid"
    if thin or state == "removed":
        return {**look, "weight": "0", **({"arrowsize": "0.5"} if thin else {})}
    frames = [end.removeprefix("node/").rpartition(".")[0] for end in (source, target)]
    return {**look, "weight": "20" if frames[0] == frames[1] else "4"}


def _write_ends(dot: graphviz.Digraph, union: Union, what: str, rank: str) -> None:
    """Write the inputs or the outputs in one row."""
    ends = {box: end for box, end in union.ends.items() if box.startswith(f"{what}/")}
    with dot.subgraph() as row:
        row.attr(rank=rank)
        for previous, right in itertools.pairwise(ends):
            row.edge(previous, right, style="invis")
        for box, (word, type_, state, notes) in ends.items():
            text = f'<font color="{_ink(state)}">{markup(short(word.replace("_", " ")))}</font>'
            row.node(
                box,
                label=f"<{text}{_notes(notes)}>",
                shape="plaintext",
                margin="0.08,0.03",
                tooltip=quoted(f"{what} {word}: {type_}"),
            )


def _write_frame(dot: graphviz.Digraph, frame: DiffFrame) -> None:
    """Write the boxes of a frame, and the frames in it."""
    for box in frame.boxes:
        path = box.name.removeprefix("node/")
        dot.node(box.name, label=_box(box), tooltip=quoted(f"{path}: {box.part.block.key}"))
    for number, inner in enumerate(frame.frames):
        with dot.subgraph(name=f"cluster_{number}_{inner.state}_{inner.path}") as sub:
            lines = wrapped(inner.title.replace("_", " "), FRAME_LINE)
            title = '<br align="left"/>'.join(map(markup, lines))
            text = f'<font point-size="10.5" color="{_ink(inner.state)}">{title}</font>'
            if inner.copies is not None:
                text = f'<font point-size="14">× {inner.copies}</font><br align="left"/>{text}'
            if inner.notes:
                text += _notes(inner.notes, align=' align="left"')
            sub.attr(
                label=f'<{text}<br align="left"/>>',
                style="rounded,filled" + (",dashed" if inner.state == "removed" else ""),
                fillcolor=PLACE[inner.state],
                color=LINE[inner.state],
                penwidth="1.2" if inner.state == "same" else "1.8",
                margin="18",
                labeljust="l",
                labelloc="b",
                tooltip=quoted(inner.path),
            )
            _write_frame(sub, inner)


def _box(box: DiffBox) -> str:
    """Return the box of a node: its name, its block, and the changes in it."""
    words = words_of(box.part)
    name = box.name.rpartition("/")[2].rpartition(".")[2].replace("_", " ")
    text = f'<font color="{_ink(box.state)}">{markup(short(name))}</font>'
    for line in wrapped(", ".join(filter(None, (words.title, words.detail))), DETAIL):
        text += f'<br/><font point-size="10" color="{DIM}">{markup(line)}</font>'
    text += _notes(box.notes)
    style = "rounded,dashed" if box.state == "removed" else "rounded"
    border = "1" if box.state == "same" else "2"
    return (
        f'<<table border="0" cellborder="{border}" cellspacing="2" color="{LINE[box.state]}">'
        f'<tr><td style="{style}" width="{WIDTH}" cellpadding="6" bgcolor="{FILL[box.state]}">'
        f"{text}</td></tr></table>>"
    )


def _notes(notes: Iterable[str], align: str = "") -> str:
    """Return the changes, one line for each."""
    lines = [*notes]
    if len(lines) > _MOST_NOTES:
        lines = [*lines[: _MOST_NOTES - 1], f"and {len(lines) - _MOST_NOTES + 1} more"]
    color = LINE["changed"]
    return "".join(
        f'<br{align}/><font point-size="10.5" color="{color}">{markup(text)}</font>'
        for line in lines
        for text in wrapped(line, LONGEST)
    )


def _ink(state: State) -> str:
    """Return the text color of a box."""
    return DIM if state == "same" else INK


def _heading(difference: GraphDiff) -> str:
    """Return the title: both names, the sizes, and a legend of the colors."""
    old, new = difference.parameters
    names = " → ".join(markup(short(name)) for name in difference.names)
    legend = "".join(
        f'<td bgcolor="{FILL[state]}" color="{LINE[state]}" border="1" width="76" '
        f'style="rounded{",dashed" if state == "removed" else ""}" cellpadding="4">'
        f'<font point-size="10.5">{word}</font></td>'
        for state, word in LEGEND.items()
    )
    sizes = f"{old:,} → {new:,} parameters" if old != new else f"{new:,} parameters, as before"
    return (
        '<<table border="0" cellspacing="6">'
        f'<tr><td><font point-size="19"><b>{names}</b></font></td></tr>'
        f'<tr><td><font point-size="11" color="{DIM}">{sizes}</font></td></tr>'
        f'<tr><td><table border="0" cellspacing="6"><tr>{legend}</tr></table></td></tr>'
        '<tr><td height="8"></td></tr></table>>'
    )
