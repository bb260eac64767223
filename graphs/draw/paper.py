"""Paper: the style of Figures 1 and 2 of "Attention Is All You Need".

Residual paths are arrows, masks and params are left out, and the number of copies stands beside
the frame.  An output named `logits` gets the softmax that the loss and the search apply to it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from ..ir.graph import Graph
from ..ir.value_type import ValueType
from .labels import SHARES, BoxText
from .picture import Box, Frame, Picture, Shape, thin
from .writer import Look

FIGURE = {
    "sinusoidal positions": "Positional Encoding",
    "matmul": "MatMul",
    "softmax": "SoftMax",
}
"""Title of a block or an operation to its words in the figures."""
_RANKSEP, _FEW = 0.24, 2
"""Distance of boxes in inches, which has space for the wires of so many others to a box."""
_MOST_ENDS = 3
"""Number of inputs beside each other from which on their names have short lines."""
_ADDED = "position: "
"""Begin of the note on a box that reads positions as a bias."""


def look_of(picture: Picture, name: str, tooltip: str) -> Look:
    """Return the look of a picture in this style."""
    sources = Counter(target for _, target in picture.wires)
    return Look(
        name=name,
        tooltip=tooltip,
        ink="#000000",
        edge="#000000",
        frame="#f3f3f4",
        frame_edge="#000000",
        width=92,
        title=11,
        end=15 if len(picture.inputs) <= _MOST_ENDS else 11,
        frame_line=11,
        size=13,
        small=11.5,
        ranksep=f"{_RANKSEP * (1 + 0.35 * (max(_FEW, *sources.values(), 0) - _FEW)):.2f}",
        cornered=True,
    )


def restyle(picture: Picture, graph: Graph | None) -> None:
    """Turn a folded picture with residual arrows into the style of the paper.

    Args:
        picture: the picture, which is changed.
        graph: the graph that it shows; None for the inside of a node.
    """
    _remove_masks(picture)
    if graph is not None:
        _remove_dropout(picture)
    _remove_unread(picture)
    for name, box in picture.boxes.items():
        if not name.startswith(("input/", "output/")):
            _reword(picture, name, box)
    if graph is None:
        if any(box.letter for box in picture.boxes.values()):
            _write_letters(picture)
        for frame in picture.root.frames:
            frame.title = titled(frame.title)
        return
    stacks = picture.stacks()
    _name_ends(picture, graph, stacks)
    _place_positions(picture, stacks)
    for frame in picture.root.below():
        _count_beside(picture, frame, stacks)


def _reword(picture: Picture, name: str, box: Box) -> None:
    """Give a box its words of the figure: no params, but what fills its slots."""
    words = box.words
    title = words.title.replace("-", " ") if words.family == "feed_forward" else words.title
    lines = [f"{slot.replace('_', ' ')}: {part.title}" for slot, part in words.parts]
    lines += [note for note in box.notes if note.startswith(_ADDED)]
    if words.detail.startswith(SHARES):
        lines.append(words.detail)
    if box.block == "elementwise":
        title, box.shape = _formula(title, sum(target == name for _, target in picture.wires))
    elif name.startswith("entry/"):
        title = words.title.partition(":")[0]
    else:
        title = titled(title)
    box.words = BoxText(title, ", ".join(lines), words.family)
    box.notes, box.lines, box.frozen = [], [], False


_SIGNS: tuple[tuple[str, str, Shape], ...] = ((" + ", "+", "sum"), (" * ", "×", "times"))
"""Operators of formulas, with what their circles show and which they are."""


def _formula(formula: str, wires: int) -> tuple[str, Shape]:
    """Return how a formula is written: sums and products of wires as circles.

    >>> _formula("x + z", 2), _formula("gelu(x)", 1), _formula("1 - x", 1)
    (('+', 'sum'), ('GELU', 'box'), ('1 - x', 'box'))
    """
    for sign, shown, shape in _SIGNS:
        names = formula.split(sign)
        if all(map(str.isidentifier, names)) and len(names) > 1:
            if len(names) == wires:
                return shown, shape
            if sign == " * " and wires == 1:
                return "Scale", "box"
    call = re.fullmatch(r"(\w+)\(\w+\)", formula)
    return (titled(call[1]) if call else formula), "box"


_SMALL = frozenset({"of", "and", "to", "the"})
"""Words that stay in lower case in titles."""
_SPELLED = {
    **{
        word.lower(): word
        for word in ("CTC", "GELU", "GRU", "KL", "LSTM", "NLL", "ReLU", "SiLU", "sin", "cos")
    },
    "mamba2": "Mamba-2",
}
"""Words in lower case to their spelling in publications."""


def titled(text: str) -> str:
    """Return a text in title case; words with capitals stay as they are.

    >>> titled("masked multi-head attention"), titled("RMS norm & add")
    ('Masked Multi-Head Attention', 'RMS Norm & Add')
    """

    def capital(word: str) -> str:
        return _SPELLED.get(word) or (word if word in _SMALL else word[:1].upper() + word[1:])

    if text in FIGURE:
        return FIGURE[text]
    return " ".join("-".join(map(capital, word.split("-"))) for word in text.split(" "))


def _remove_masks(picture: Picture) -> None:
    """Remove masks: wires, and inputs and outputs that are nothing else; positions become notes."""
    for (source, target), types in [*picture.wires.items()]:
        picture.wires[source, target] = [type_ for type_ in types if not thin([type_])]
        if thin(types):
            del picture.wires[source, target]
            words = picture.boxes[source].words
            if words.family == "position" and not source.startswith("input/"):
                picture.note(target, f"{_ADDED}{words.title}")
    used = {end for ends in (*picture.wires, *picture.residuals) for end in ends}
    for name in [name for name in (*picture.inputs, *picture.outputs) if name not in used]:
        picture.remove(name)


def _remove_dropout(picture: Picture) -> None:
    """Remove boxes that compute nothing after the training."""
    for name in [name for name, box in picture.boxes.items() if box.block == "dropout"]:
        sources = [source for source, target in picture.wires if target == name]
        if len(sources) == 1:
            picture.replace_end(name, sources[0])


def _remove_unread(picture: Picture) -> None:
    """Remove boxes that no output depends on once masks are left out."""
    used, waiting = {*picture.outputs}, [*picture.outputs]
    below: dict[str, list[str]] = {}
    for source, target in (*picture.wires, *picture.residuals):
        below.setdefault(target, []).append(source)
    for box in waiting:
        sources = [source for source in below.get(box, ()) if source not in used]
        used.update(sources)
        waiting += dict.fromkeys(sources)
    for name in [name for name in picture.boxes if name not in used]:
        picture.wires = {ends: t for ends, t in picture.wires.items() if name not in ends}
        picture.loops = [ends for ends in picture.loops if name not in ends]
        picture.remove(name)


def _write_letters(picture: Picture) -> None:
    """Replace the inputs of a block by the letters of what is computed from them."""
    for name, box in [*picture.boxes.items()]:
        if box.letter:
            letter, types = f"input/{box.letter}", list[ValueType]()
            for ends in [ends for ends in picture.wires if ends[1] == name]:
                types += picture.wires.pop(ends)
            picture.boxes[letter] = Box(words=BoxText(box.letter, "", "other"), shape="text")
            picture.inputs.append(letter)
            picture.wires[letter, name] = types
    _remove_masks(picture)
    for name in picture.outputs:
        picture.boxes[name].words = BoxText(" ", "", "other")


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
            stack = picture.stack_of(name)
            which = "Output" if stack in shifted else "Input"
            if stack not in shifted and len(others) > 1:
                which = picture.boxes[stack].words.title.removesuffix("s")
            box.words = replace(box.words, title=f"{which} Embedding")
    for name in picture.outputs:
        box = picture.boxes[name]
        box.words = replace(box.words, title=titled(box.words.title))
        if name == "output/logits":
            box.words = replace(box.words, title="Output Probabilities")
            _add_softmax(picture, name)


def _add_softmax(picture: Picture, output: str) -> None:
    """Put a softmax between an output and what computes it."""
    box = Box(words=BoxText("Softmax", "", "softmax"), tooltip="softmax of the logits")
    picture.add(picture.root, "node/softmax of logits", box)
    for source, target in [ends for ends in picture.wires if ends[1] == output]:
        types: Iterable[ValueType] = picture.wires.pop((source, target))
        picture.columns.pop(output, None)
        for type_ in types:
            picture.wire(source, "node/softmax of logits", type_)
            picture.wire("node/softmax of logits", output, type_)


def _place_positions(picture: Picture, stacks: list[str]) -> None:
    """Draw the positions at the bottom of a stack as a sum with a wave."""
    for name in picture.root.boxes:
        box = picture.boxes[name]
        if box.words.family != "position":
            continue
        side = picture.side_of(name, stacks)
        title = box.words.title
        box.shape, wave, text = "sum", f"wave/{name}", f"text/{name}"
        box.words = replace(box.words, title="+")
        picture.boxes[wave] = Box(words=box.words, shape="wave", tooltip=box.tooltip)
        picture.boxes[text] = Box(words=BoxText(title, "", "position"), shape="text")
        picture.beside += [(wave, name, side), (text, wave, side)]
        picture.links.append((wave, name))


def _count_beside(picture: Picture, frame: Frame, stacks: list[str]) -> None:
    """Write the number of copies beside a frame, and the name of one that is in another."""
    frame.title = titled(frame.title.replace("_", " "))
    if frame.copies is None and not frame.pattern:
        return
    boxes = [*frame.within()]
    name, count = f"copies/{frame.path}", frame.copies or 1
    if count > 1 and boxes:
        picture.boxes[name] = Box(words=BoxText(f"{count}×", "", "other"), shape="text")
        picture.beside.append((name, frame.path, picture.side_of(boxes[0], stacks)))
    frame.title = "" if frame in picture.root.frames else frame.title
    frame.copies, frame.pattern, frame.note = None, "", ""
