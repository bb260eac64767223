"""Diagram: a graph as a picture, after Figure 1 of "Attention Is All You Need".

Inputs stand at the bottom and the flow goes up; each template is a frame, drawn
once and marked with how often it repeats.  What boxes say is in `diagram_words.py`.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import graphviz

from ..specs.findings import InputError
from .diagram_words import COLORS, DIM, FAINT, INK, count_words, markup, plain, short, words_of
from .graph import Graph, Node, Scope
from .outline import find_weight
from .shapes import ValueType

Form = Literal["folded", "typed", "expanded"]
"""Templates once; the same with types on the wires; every copy."""

SUFFIXES = ("svg", "png", "pdf", "dot")
"""Files that `draw` can write, by suffix."""
MASKS = frozenset({"keep", "bias", "len", "pos"})
"""Kinds of values that steer other blocks; their wires are thin."""
FONT = "Helvetica,Arial,sans-serif"
WIDTH = 174
"""Points that a box is wide at least, so that a stack has straight sides."""
MOST_NAMED = 4
"""Boxes that the heading names when they share a weight."""
LONGEST_RENDER = 300
"""Seconds that `dot` may take."""

_Value = tuple[str, ValueType]
"""The box that gives a value, and its type."""


@dataclass(slots=True)
class _Frame:
    """A template in its place, or the whole picture."""

    path: str
    title: str
    copies: int | None = None
    boxes: list[str] = field(default_factory=list)
    """DOT names of the boxes that lie directly in it."""
    frames: list[_Frame] = field(default_factory=list)


@dataclass(slots=True)
class _Picture:
    """Boxes, frames and wires, before they are DOT."""

    root: _Frame
    unfolded: bool = False
    boxes: dict[str, Node] = field(default_factory=dict)
    """DOT name of a box to its node."""
    wires: dict[tuple[str, str], list[ValueType]] = field(default_factory=dict)
    """The two ends to the types between them."""

    def wire(self, source: str, target: str, type_: ValueType) -> None:
        """Draw a wire; a second one of the same type is the same line."""
        types = self.wires.setdefault((source, target), [])
        if type_ not in types:
            types.append(type_)


def diagram(graph: Graph, form: Form = "folded") -> graphviz.Digraph:
    """Return the picture of a graph; equal graphs give equal text.

    Args:
        graph: what to draw.
        form: `folded` draws each template once, `typed` also writes the type on
            each wire, `expanded` draws every copy.
    """
    picture = _Picture(_Frame("", graph.name), form == "expanded")
    _place(picture, picture.root, graph.root, "", unfold=form == "expanded")
    if form == "expanded":
        _wire_flat(picture, graph)
    else:
        inputs = {name: (f"input/{name}", type_) for name, type_ in graph.inputs.items()}
        for name, (box, type_) in _wire_folded(picture, graph.root, "", inputs).items():
            picture.wire(box, f"output/{name}", type_)
    return _write(picture, graph, typed=form == "typed")


def draw(graph: Graph, out: Path, form: Form = "folded") -> Path:
    """Write the picture of a graph; the suffix of the file says how.

    Raises:
        InputError: unknown suffix, no `dot` on this machine, or the file cannot be
            written.
    """
    out = Path(out)
    suffix = out.suffix.removeprefix(".").lower()
    if suffix not in SUFFIXES:
        known = ", ".join(f".{name}" for name in SUFFIXES)
        problem = f"cannot draw into a file that ends in '{out.suffix}'"
        raise InputError(problem, place=str(out), help=f"end the name in one of {known}")
    picture = diagram(graph, form)
    content = picture.source.encode() if suffix == "dot" else _render(picture, suffix, out)
    beside = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        try:
            beside.write_bytes(content)
            os.replace(beside, out)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        problem = f"cannot write the diagram: {error.strerror}"
        raise InputError(problem, place=str(out), help="choose another place with -o") from error
    return out


def _render(picture: graphviz.Digraph, suffix: str, out: Path) -> bytes:
    """Return the picture as `dot` draws it."""
    source = picture.source.encode()
    options = ["-Gdpi=144"] if suffix == "png" else []
    try:
        done = subprocess.run(
            ["dot", f"-T{suffix}", *options],
            input=source,
            capture_output=True,
            check=False,
            timeout=LONGEST_RENDER,
        )
    except FileNotFoundError as error:
        raise InputError(
            "there is no program 'dot' to draw with",
            place=str(out),
            help="install graphviz (Debian: apt-get install graphviz), or write a .dot file,"
            " which needs none",
        ) from error
    except subprocess.TimeoutExpired as error:
        problem = f"'dot' was not done after {LONGEST_RENDER} seconds"
        raise InputError(problem, place=str(out), help="draw the folded form") from error
    if done.returncode or not done.stdout:
        words = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise InputError(
            f"'dot' could not draw: {words[-1]}", place=str(out), help="write a .dot file instead"
        )
    return done.stdout


def _place(picture: _Picture, frame: _Frame, scope: Scope, prefix: str, *, unfold: bool) -> None:
    """Put a box for each block of a scope into its frame, and a frame for each template."""
    for node in scope.nodes:
        path = prefix + node.name
        if node.body is None:
            box = f"node/{path}"
            picture.boxes[box] = node
            frame.boxes.append(box)
            continue
        repeated = node.repeat is not None
        title = node.body.name.replace("_", " ")
        if not repeated or not unfold:
            place = f"{path}.*" if repeated else path
            inner = _Frame(place, title, node.repeat)
            frame.frames.append(inner)
            _place(picture, inner, node.body, f"{place}.", unfold=unfold)
            continue
        stack = _Frame(path, title, node.repeat)
        frame.frames.append(stack)
        for index in range(node.repeat or 0):
            inner = _Frame(f"{path}.{index}", f"{path}.{index}")
            stack.frames.append(inner)
            _place(picture, inner, node.body, f"{path}.{index}.", unfold=unfold)


def _wire_flat(picture: _Picture, graph: Graph) -> None:
    """Draw the wires of every copy."""
    flat = graph.flat()

    def box(vertex: str) -> str:
        kind = flat.nodes[vertex]["kind"]
        return (
            f"output/{vertex.partition(':')[2]}"
            if kind == "output"
            else (f"input/{vertex}" if kind == "input" else f"node/{vertex}")
        )

    for source, target, wires in flat.edges(data="wires"):
        for wire in wires:
            if wire["type"].kind in MASKS:
                continue
            picture.wire(box(source), box(target), wire["type"])


def _wire_folded(
    picture: _Picture, scope: Scope, prefix: str, inputs: Mapping[str, _Value]
) -> dict[str, _Value]:
    """Draw the wires of a scope, templates once; return who gives its outputs."""
    known = dict(inputs)
    for node in scope.nodes:
        path = prefix + node.name
        reads = {port: known[value] for port, value in node.wires.items()}
        if node.body is None:
            for box, type_ in reads.values():
                picture.wire(box, f"node/{path}", type_)
            given = {port: (f"node/{path}", type_) for port, type_ in node.outputs.items()}
        else:
            inner = f"{path}.*." if node.repeat is not None else f"{path}."
            given = _wire_folded(picture, node.body, inner, reads)
        known |= {f"{node.name}.{port}": value for port, value in given.items()}
    return {port: known[value] for port, value in scope.outputs.items()}


# --- DOT ---------------------------------------------------------------------


def _write(picture: _Picture, graph: Graph, *, typed: bool) -> graphviz.Digraph:
    """Return the picture as DOT."""
    dot = graphviz.Digraph(name=plain(graph.name))
    dot.attr(
        "graph",
        rankdir="BT",
        label=_heading(graph),
        labelloc="t",
        tooltip=plain(graph.doc or graph.name),
        fontname=FONT,
        fontcolor=INK,
        bgcolor="white",
        nodesep="0.5",
        ranksep="0.42",
        pad="0.35",
        remincross="true",
        newrank="true",
    )
    dot.attr("node", shape="plain", fontname=FONT, fontsize="12.5", fontcolor=INK)
    dot.attr(
        "edge",
        color=INK,
        fontname=FONT,
        fontsize="10",
        fontcolor=FAINT,
        arrowsize="0.7",
        penwidth="1.1",
    )
    _write_ends(dot, "input", graph.inputs, "min")
    shared = _shared(graph)
    _write_frame(dot, picture, picture.root, shared)
    _write_ends(dot, "output", graph.outputs, "max")
    for box, column in _columns(picture).items():
        dot.node(box, group=column)
    for (source, target), types in picture.wires.items():
        thin = _thin(types)
        label = "\n".join(f" {type_} " for type_ in types) if typed else ""
        style = {"label": plain(label)} if label else {}
        if thin:
            style |= {"style": "dashed", "color": FAINT, "penwidth": "0.7", "arrowsize": "0.55"}
            style["weight"] = "0"
        else:
            near = source.rpartition(".")[0] == target.rpartition(".")[0]
            style |= {"tailport": "n", "weight": "20" if near else "4"}
        dot.edge(source, target, **style)
    return dot


def _columns(picture: _Picture) -> dict[str, str]:
    """Return the input over which each box stands: that of its first wire."""
    columns: dict[str, str] = {}
    for (source, target), types in picture.wires.items():
        if target not in columns and not _thin(types):
            columns[target] = columns.setdefault(source, source)
    return columns


def _thin(types: Iterable[ValueType]) -> bool:
    """Whether a wire only steers."""
    return all(type_.kind in MASKS for type_ in types)


def _write_ends(
    dot: graphviz.Digraph, what: str, types: Mapping[str, ValueType], rank: str
) -> None:
    """Write the inputs or the outputs, in one row."""
    with dot.subgraph() as row:
        row.attr(rank=rank)
        thick = [f"{what}/{name}" for name, type_ in types.items() if type_.kind not in MASKS]
        for left, right in itertools.pairwise(thick):
            row.edge(left, right, style="invis")
        for name, type_ in types.items():
            thin = type_.kind in MASKS
            row.node(
                f"{what}/{name}",
                label=plain(short(name.replace("_", " "))),
                shape="plaintext",
                margin="0.08,0.03",
                tooltip=plain(f"{what} {name}: {type_}"),
                fontsize="11" if thin else "13",
                fontcolor=FAINT if thin else INK,
            )


def _write_frame(
    dot: graphviz.Digraph, picture: _Picture, frame: _Frame, shared: Mapping[str, str]
) -> None:
    """Write the boxes of a frame, and the frames in it."""
    for box in frame.boxes:
        node = picture.boxes[box]
        path = box.removeprefix("node/")
        dot.node(
            box,
            label=_box_label(node, shared.get(path, "")),
            tooltip=plain(_tooltip(node, path)),
        )
    for inner in frame.frames:
        with dot.subgraph(name=f"cluster_{inner.path}") as sub:
            said = f'<font point-size="11.5">{markup(short(inner.title))}</font>'
            if inner.copies is not None:
                said += f'<br align="left"/><font point-size="15">× {inner.copies}</font>'
            sub.attr(
                label=f'<{said}<br align="left"/>>',
                style="rounded,filled",
                fillcolor="#f6f7f8",
                color="#b9bec6",
                penwidth="1.2",
                margin="14",
                labeljust="l",
                tooltip=plain(inner.path),
            )
            _write_frame(sub, picture, inner, shared)


def _box_label(node: Node, shared: str) -> str:
    """Return the box of one node: bands of its wrapper around what it computes."""
    if node.part is None:
        return plain(node.name)
    words = words_of(node.part)
    detail = ", ".join(part for part in (words.detail, shared) if part)
    said = markup(short(words.title))
    if detail:
        said += f'<br/><font point-size="10" color="{DIM}">{markup(short(detail))}</font>'
    rows = [
        *(_band(text) for text in reversed(words.above)),
        _row(said, COLORS[words.family], 6),
        *(_band(text) for text in reversed(words.below)),
    ]
    table = '<table border="0" cellborder="1" cellspacing="2" color="#4a4f57">'
    return f"<{table}{''.join(rows)}</table>>"


def _band(text: str) -> str:
    """Return the row of a wrapper, thinner than what it wraps."""
    said = f'<font point-size="11">{markup(short(text))}</font>'
    return _row(said, COLORS["norm"], 2)


def _row(said: str, color: str, padding: int) -> str:
    """Return one rounded row of a box."""
    look = f'style="rounded" width="{WIDTH}" bgcolor="{color}" cellpadding="{padding}"'
    return f"<tr><td {look}>{said}</td></tr>"


def _tooltip(node: Node, path: str) -> str:
    """Return what a pointer over the box shows: path, block, doc."""
    return f"{path}: {node.part.block.key}" if node.part else path


def _shared(graph: Graph) -> dict[str, str]:
    """Return what the box of a tied weight says, by its path in every form."""
    said: dict[str, list[str]] = {}
    for index, group in enumerate(graph.ties, start=1):
        words = "shared weight" + (f" {index}" if len(graph.ties) > 1 else "")
        for weight in group:
            held = find_weight(graph.root, weight)
            for path in {held.path, held.folded}:
                known = said.setdefault(path, [])
                if words not in known:
                    known.append(words)
    return {path: ", ".join(words) for path, words in said.items()}


def _heading(graph: Graph) -> str:
    """Return the title: name, size, and what is one tensor."""
    notes = [f"{count_words(graph.parameters())} parameters"]
    if len(graph.ties) == 1:
        holders = [find_weight(graph.root, weight).path for weight in graph.ties[0]]
        if len(holders) <= MOST_NAMED:
            notes.append(f"{', '.join(holders[:-1])} and {holders[-1]} share one weight")
    lines = [
        f'<font point-size="20"><b>{markup(short(graph.name))}</b></font>',
        *(f'<font point-size="11" color="{DIM}">{markup(note)}</font>' for note in notes),
    ]
    return f"<{'<br/>'.join(lines)}>"
