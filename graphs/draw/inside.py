"""Inside: the picture of one node, such as the operations of attention (Figure 2 of the paper)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ...specs.findings import InputError, did_you_mean
from ..ir.block_type import Inside, Step
from ..ir.graph import Filling, Graph, Part, Scope
from ..ir.traverse import Visit, model_of, visits
from ..ir.value_type import ValueType
from .labels import Words, words_of
from .picture import Box, Frame, Picture

_VALUE = ValueType("f", ())
"""Type of the values between the operations of a block, which are not written."""
_LISTED = 8
"""Maximum number of nodes that a finding lists."""


def find(graph: Graph, path: str) -> Graph | Scope | Part:
    """Return what the inside of a node is: a model, a template, or a block with operations.

    A block with a residual path stands for the block in its slot.

    Args:
        graph: the graph that contains the node.
        path: path of the node, such as `decoder.*.self_attention` or `encoder`.

    Raises:
        InputError: there is no such node, or its inside has no drawing.
    """
    known = {visit.path: visit for visit in visits(graph.root)}
    visit = known.get(path) or _numbered(graph, path)
    if visit is None:
        raise InputError(
            f"no node '{path}' in {graph.name}",
            place=graph.source,
            help=did_you_mean(path, known) or f"'weft show {graph.name}' lists all paths",
        )
    inside = _inside(visit)
    if inside is None:
        named = visit.part.key if visit.part is not None else "template"
        others = [other for other, one in known.items() if one.kind != "index" and _inside(one)]
        more = ", ..." if len(others) > _LISTED else ""
        raise InputError(
            f"the inside of '{path}' ({named}) has no drawing",
            place=graph.source,
            help=f"these nodes have one: {', '.join(others[:_LISTED])}{more}"
            if others
            else "draw the whole spec, without --node",
        )
    return inside


def _numbered(graph: Graph, path: str) -> Visit | None:
    """Return the visit of a path with numbers of copies."""
    return next((visit for visit in visits(graph.root, "each") if visit.path == path), None)


def _inside(visit: Visit) -> Graph | Scope | Part | None:
    """Return the inside of a visited node, or None."""
    if visit.kind == "name" and (model := model_of(visit.node)) is not None:
        return model
    if visit.body is not None:
        return visit.body
    return None if visit.part is None else _of_part(visit.part)


def _of_part(part: Filling) -> Scope | Part | None:
    """Return the inside of a block or of what fills its only slot, or None."""
    if not isinstance(part, Part):
        return part.body
    if part.block.inside is not None:
        return part
    if part.block.bands is not None and len(part.fill) == 1:
        return _of_part(next(iter(part.fill.values())))
    return None


def lay_out_block(part: Part, path: str) -> Picture:
    """Return the picture of the operations in a block that declares them.

    Args:
        part: a part whose block has `inside`.
        path: path of its node, for tooltips.

    Raises:
        InputError: the block, of a package of its own, declares something else than operations.
    """
    inside = _declared(part)
    picture = Picture(Frame("", part.key))
    for name, type_ in part.inputs.items():
        picture.add_end(f"input/{name}", type_)
    for name in inside.outputs:
        picture.add_end(f"output/{name}", part.outputs[name])
    frames: dict[str, Frame] = {"": picture.root}
    for name, (title, count) in inside.frames.items():
        frames[name] = Frame(name, title, count)
        picture.root.frames.append(frames[name])
    readers = Counter(source for step in inside.steps for source in {*step.reads})
    outside = {f"node/{step.name}" for step in inside.steps if not step.frame}
    for step in inside.steps:
        box = Box(words=_words(step, part), tooltip=f"{path}: {step.name}", letter=step.letter)
        picture.add(frames[step.frame], f"node/{step.name}", box)
        passed = part.slot_ports(step.slot) if step.slot else ()
        for source in dict.fromkeys((*step.reads, *passed)):
            type_ = part.inputs.get(source, _VALUE)
            end = f"node/{source}" if f"node/{source}" in picture.boxes else f"input/{source}"
            alone = readers[source] == 1 and all(f"node/{r}" in outside for r in step.reads)
            if step.frame and end in outside and not alone:
                end = _enter(picture, frames[step.frame], end, type_)
            picture.wire(end, f"node/{step.name}", type_)
    for name, step_name in inside.outputs.items():
        picture.wire(f"node/{step_name}", f"output/{name}", part.outputs[name])
    picture.rows = [[f"node/{name}" for name in row] for row in inside.rows]
    picture.columns.clear()
    return picture


def _declared(part: Part) -> Inside:
    """Return the operations of a block, after checking what they refer to.

    Raises:
        InputError: the block declares something else.
    """
    made, problem = None, ""
    try:
        made = part.block.inside(part) if part.block.inside is not None else None
    except Exception as error:  # noqa: BLE001 - the block may be of another package
        problem = f"it raises {type(error).__name__}: {error}"
    if isinstance(made, Inside):
        known, frames = {*part.inputs}, {"", *made.frames}
        for step in made.steps:
            strange = [name for name in step.reads if name not in known]
            if strange or step.frame not in frames or (step.slot and step.slot not in part.fill):
                wrong = strange[0] if strange else step.frame or step.slot
                problem = problem or f"its step '{step.name}' refers to '{wrong}', which is unknown"
            known.add(step.name)
        for port, name in made.outputs.items():
            if port not in part.outputs or name not in known - {*part.inputs}:
                problem = problem or f"its output '{port}' is '{name}', which is unknown"
        if not problem:
            return _with_lora(made, part)
    problem = problem or f"it returns {made!r:.60}, not an Inside"
    raise InputError(
        f"the inside of block '{part.key}' cannot be drawn: {problem}",
        help="write inside=lambda part: Inside(steps=(Step(name='z', reads=('x',)),), "
        "outputs={'y': 'z'})",
    )


def _with_lora(inside: Inside, part: Part) -> Inside:
    """Note the low-rank matrices at the linear maps that have some."""
    if part.lora is None:
        return inside
    maps, note = part.lora.chosen(part.block.maps), f"LoRA rank {part.lora.rank}"
    steps = (
        replace(step, detail=", ".join(filter(None, (step.detail, note))))
        if step.name in maps
        else step
        for step in inside.steps
    )
    return replace(inside, steps=tuple(steps))


def _enter(picture: Picture, frame: Frame, end: str, type_: ValueType) -> str:
    """Return the point where a value enters a frame, so that its wires branch inside."""
    name = f"join/{frame.path}/{end}"
    if name not in picture.boxes:
        picture.add(frame, name, Box(words=Words("", "", "other"), shape="join"))
        picture.wire(end, name, type_)
    return name


def _words(step: Step, part: Part) -> Words:
    """Return the text of an operation, and of what fills its slot."""
    if not step.slot:
        return Words(step.title, step.detail, step.family)
    words = words_of(part.fill[step.slot])
    if not step.title:
        details = filter(None, (words.detail, f"slot {step.slot}"))
        return Words(words.title, ", ".join(details), words.family)
    filled = f"{words.title} {words.detail}".strip()
    return Words(step.title, ", ".join(filter(None, (step.detail, filled))), step.family)
