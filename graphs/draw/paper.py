"""Paper: the style of Figures 1 and 2 of "Attention Is All You Need".

Residual paths are arrows, masks and params are left out, and the number of copies stands beside
the frame.  An output named `logits` gets the softmax that the loss and the search apply to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..ir.graph import Graph
from ..ir.value_type import ValueType
from .labels import Words
from .picture import Box, Frame, Picture, Side, thin
from .writer import Look, side_of

FIGURE = {
    "sinusoidal positions": "Positional Encoding",
    "matmul": "MatMul",
    "softmax": "SoftMax",
}
"""Title of a block or an operation to its words in the figures."""
LOOSE = (1, 2)
"""A wire from one stack to another may lead down by so many boxes; then both begin level."""


def look_of(name: str, tooltip: str) -> Look:
    """Return the look of a picture in this style."""
    return Look(
        name=name,
        tooltip=tooltip,
        ink="#000000",
        edge="#000000",
        frame="#f3f3f4",
        frame_edge="#000000",
        width=92,
        title=11,
        end=15,
        frame_line=11,
        size=13,
        ranksep="0.2",
    )


def restyle(picture: Picture, graph: Graph | None) -> None:
    """Turn a folded picture with residual arrows into the style of the paper.

    Args:
        picture: the picture, which is changed.
        graph: the graph that it shows; None for the inside of a node.
    """
    _remove_masks(picture)
    for name, box in picture.boxes.items():
        if not name.startswith(("input/", "output/")):
            title = box.words.title.replace("-", " ") if _feeds(box) else box.words.title
            box.words = Words(titled(title), "", box.words.family)
            box.notes, box.lines, box.frozen = [], [], False
    if graph is None:
        if any(box.letter for box in picture.boxes.values()):
            _write_letters(picture)
        for frame in picture.root.frames:
            frame.title = titled(frame.title)
        return
    stacks = picture.stacks()
    _name_ends(picture, graph, stacks)
    _place_positions(picture, stacks)
    for frame in picture.root.frames:
        _count_beside(picture, frame, stacks)
    heights = picture.heights()
    between = [ends for ends in picture.wires if picture.crosses(*ends)]
    if all(LOOSE[0] <= heights[a] - heights[b] <= LOOSE[1] for a, b in between):
        picture.loose.update(between)
    picture.beside.sort(key=lambda entry: heights.get(entry[1], 0))


_SMALL = frozenset({"of", "and", "to", "the"})
"""Words that stay in lower case in titles."""


def titled(text: str) -> str:
    """Return a text in title case; words with capitals stay as they are.

    >>> titled("masked multi-head attention"), titled("RMS norm & add")
    ('Masked Multi-Head Attention', 'RMS Norm & Add')
    """

    def capital(word: str) -> str:
        return word if word in _SMALL else word[:1].upper() + word[1:]

    if text in FIGURE:
        return FIGURE[text]
    return " ".join("-".join(map(capital, word.split("-"))) for word in text.split(" "))


def _feeds(box: Box) -> bool:
    return box.words.family == "feed_forward"


def _remove_masks(picture: Picture) -> None:
    """Remove masks: their wires, and inputs that are nothing else."""
    picture.wires = {ends: types for ends, types in picture.wires.items() if not thin(types)}
    used = {end for ends in picture.wires for end in ends}
    for name in [name for name in picture.inputs if name not in used]:
        picture.inputs.remove(name)
        del picture.boxes[name]


def _write_letters(picture: Picture) -> None:
    """Replace the inputs of a block by the letters of what is computed from them."""
    for name, box in [*picture.boxes.items()]:
        if box.letter:
            letter, types = f"input/{box.letter}", list[ValueType]()
            for ends in [ends for ends in picture.wires if ends[1] == name]:
                types += picture.wires.pop(ends)
            picture.boxes[letter] = Box(words=Words(box.letter, "", "other"), shape="text")
            picture.inputs.append(letter)
            picture.wires[letter, name] = types
    _remove_masks(picture)
    for name in picture.outputs:
        picture.boxes[name].words = Words(" ", "", "other")


def _name_ends(picture: Picture, graph: Graph, stacks: list[str]) -> None:
    """Name inputs, outputs and embeddings as the figure does, and add the softmax."""
    stepped = {
        f"input/{name}"
        for name, type_ in graph.inputs.items()
        if graph.step_axis is not None and graph.step_axis in type_.axes
    }
    shifted = stepped if len(stacks) > 1 else set[str]()
    others = [name for name in picture.inputs if name not in shifted]
    for name in picture.inputs:
        box = picture.boxes[name]
        title = titled(box.words.title)
        if len(others) == 1 and name in others:
            title = "Inputs"
        elif name in shifted and len(shifted) == 1:
            title = "Outputs (shifted right)"
        box.words = replace(box.words, title=title)
    for name, box in picture.boxes.items():
        if box.words.title == "Embedding" and not name.startswith("input/"):
            which = "Output" if picture.stack_of(name) in shifted else "Input"
            box.words = replace(box.words, title=f"{which} Embedding")
    for name in picture.outputs:
        box = picture.boxes[name]
        box.words = replace(box.words, title=titled(box.words.title))
        if name == "output/logits":
            box.words = replace(box.words, title="Output Probabilities")
            _add_softmax(picture, name)


def _add_softmax(picture: Picture, output: str) -> None:
    """Put a softmax between an output and what computes it."""
    box = Box(words=Words("Softmax", "", "softmax"), tooltip="softmax of the logits")
    picture.add(picture.root, "node/softmax of logits", box)
    for source, target in [ends for ends in picture.wires if ends[1] == output]:
        types: Iterable[ValueType] = picture.wires.pop((source, target))
        picture.columns.pop(output, None)
        for type_ in types:
            picture.wire(source, "node/softmax of logits", type_)
            picture.wire("node/softmax of logits", output, type_)


def _edge_of(picture: Picture, box: str, stacks: list[str]) -> Side | None:
    """Return the edge of the picture that a stack stands at; None for stacks in the middle."""
    stack = picture.stack_of(box)
    if stack not in (stacks[:1] + stacks[-1:]):
        return None
    return side_of(box, picture, stacks) if len(stacks) > 1 else "left"


def _place_positions(picture: Picture, stacks: list[str]) -> None:
    """Draw the positions at the bottom of a stack as a sum with a wave."""
    for name in picture.root.boxes:
        box = picture.boxes[name]
        side = _edge_of(picture, name, stacks)
        if box.words.family != "position" or side is None:
            continue
        title = box.words.title
        box.shape, wave, text = "sum", f"wave/{name}", f"text/{name}"
        box.words = replace(box.words, title="+")
        picture.boxes[wave] = Box(words=box.words, shape="wave", tooltip=box.tooltip)
        picture.boxes[text] = Box(words=Words(title, "", "position"), shape="text")
        picture.beside += [(wave, name, side, "inner"), (text, name, side, "outer")]
        picture.links.append((wave, name) if side == "left" else (name, wave))


def _count_beside(picture: Picture, frame: Frame, stacks: list[str]) -> None:
    """Write the number of copies beside a frame, where there is space, or into it."""
    boxes = [name for name in frame.within() if picture.boxes[name].shape == "box"]
    side = _edge_of(picture, boxes[0], stacks) if boxes else None
    frame.title, frame.note = "", ""
    if frame.copies is None or side is None or frame.pattern:
        frame.title = titled(frame.path.rpartition(".")[2].replace("_", " "))
        return
    name, middle = f"copies/{frame.path}", boxes[len(boxes) // 2]
    picture.boxes[name] = Box(words=Words(f"{frame.copies}×", "", "other"), shape="text")
    picture.beside.append((name, middle, side, "inner"))
    frame.copies = None
