"""Diagram: draw a graph in the style of Figure 1 of "Attention Is All You Need".

Each template is a frame, drawn once and marked with its number of copies.  `layout.py` decides
what is drawn, `labels.py` the text of boxes, and `writer.py` how they look; `paper.py` is the
style of the paper's own figures.  The inside of one node, such as the operations of attention, is
a picture of its own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Literal

import graphviz

from ...specs.files import write_beside
from ...specs.findings import InputError, did_you_mean
from ..ir.block_type import Inside, Step
from ..ir.canonical import numbered_apart
from ..ir.graph import Filling, Graph, Part, Scope
from ..ir.traverse import Visit, find_weight, holds_model, model_of, placed, scopes, visits
from ..ir.value_type import ValueType
from ..passes.freeze import marked_frozen
from .html_page import page
from .labels import BoxText, count_words, words_of
from .layout import lay_out, lay_out_graph
from .paper import look_of, restyle
from .picture import Box, Frame, Picture
from .placement import PicturePlacement
from .positions import positions
from .render import SUFFIXES, check_suffix, write_picture
from .routes import route
from .tikz import tikz
from .writer import Look, is_large, write

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
    by_path = {visit.path: visit for visit in visits(graph.root)}
    visit = by_path.get(path) or _numbered(graph, path)
    if visit is None:
        raise InputError(
            f"no node '{path}' in {graph.name}",
            location=graph.source,
            help=did_you_mean(path, by_path) or f"'weft show {graph.name}' lists all paths",
        )
    inside = _inside(visit)
    if inside is None:
        label = visit.part.key if visit.part is not None else "template"
        others = [
            other
            for other, candidate in by_path.items()
            if candidate.kind != "index" and _inside(candidate)
        ]
        more = ", ..." if len(others) > _LISTED else ""
        raise InputError(
            f"the inside of '{path}' ({label}) has no drawing",
            location=graph.source,
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
    inside, problem = None, ""
    try:
        inside = part.block.inside(part) if part.block.inside is not None else None
    except Exception as error:  # noqa: BLE001 - the block may be of another package
        problem = f"it raises {type(error).__name__}: {error}"
    if isinstance(inside, Inside):
        names, frames = {*part.inputs}, {"", *inside.frames}
        for step in inside.steps:
            strange = [name for name in step.reads if name not in names]
            if strange or step.frame not in frames or (step.slot and step.slot not in part.fill):
                wrong = strange[0] if strange else step.frame or step.slot
                problem = problem or f"its step '{step.name}' refers to '{wrong}', which is unknown"
            names.add(step.name)
        for port, name in inside.outputs.items():
            if port not in part.outputs or name not in names - {*part.inputs}:
                problem = problem or f"its output '{port}' is '{name}', which is unknown"
        if not problem:
            return _with_lora(inside, part)
    problem = problem or f"it returns {inside!r:.60}, not an Inside"
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
        picture.add(frame, name, Box(words=BoxText("", "", "other"), shape="join"))
        picture.wire(end, name, type_)
    return name


def _words(step: Step, part: Part) -> BoxText:
    """Return the text of an operation, and of what fills its slot."""
    if not step.slot:
        return BoxText(step.title, step.detail, step.family)
    words = words_of(part.fill[step.slot])
    if not step.title:
        details = filter(None, (words.detail, f"slot {step.slot}"))
        return BoxText(words.title, ", ".join(details), words.family)
    filled = f"{words.title} {words.detail}".strip()
    return BoxText(step.title, ", ".join(filter(None, (step.detail, filled))), step.family)


Form = Literal["folded", "typed", "expanded"]
"""`folded`: each template once; `typed`: the same with types on wires; `expanded`: every copy."""
Style = Literal["plain", "paper"]
"""`plain`: boxes with params, and masks; `paper`: as the figures of Vaswani et al. 2017."""

MOST_BOXES = 10_000
"""Maximum number of boxes in a picture of every copy."""
MOST_NAMED = 4
"""Maximum number of boxes with a shared weight that the heading names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What to draw of a graph, and how."""

    form: Form = "folded"
    style: Style = "plain"
    residuals: bool = False
    """Whether residual paths are arrows around the boxes."""
    node: str = ""
    """Path of the node to draw the inside of; the complete graph if empty."""

    def check(self) -> None:
        """Refuse settings that have no effect together.

        Raises:
            InputError: there are such settings.
        """
        if self.style == "paper" and self.form != "folded":
            raise InputError(
                f"the style 'paper' has no form '{self.form}'",
                location="form",
                help="use the form 'folded', or the style 'plain'",
            )
        if self.style == "paper" and self.residuals:
            raise InputError(
                "residuals has no effect, because the style 'paper' always draws residual arrows",
                location="residuals",
                help="leave it out, or use the style 'plain'",
            )


def diagram(
    graph: Graph,
    form: Form = "folded",
    *,
    style: Style = "plain",
    residuals: bool = False,
    node: str = "",
) -> graphviz.Digraph:
    """Return the diagram of a graph as DOT that dot places; equal graphs give equal text.

    Wires have corners only in what `draw` writes, which needs dot to place the boxes.

    Args:
        graph: the graph to draw.
        form: `folded` draws each template once, `typed` also writes the type on
            each wire, `expanded` draws every copy.
        style: `plain` writes params and masks, `paper` draws as Vaswani et al. 2017.
        residuals: whether residual paths are arrows around the boxes.
        node: path of a node, such as `decoder.*.self_attention`, to draw its inside instead.

    Raises:
        InputError: there is no such node, the settings have no effect together, or an expanded
            picture would have too many boxes.
    """
    return write(*sketch(graph, form, style=style, residuals=residuals, node=node))


def figure(picture: Picture, look: Look) -> graphviz.Digraph:
    """Return a picture as DOT; if it has residual arrows, in its place and with corners.

    Raises:
        InputError: `dot` fails.
    """
    if not look.cornered or is_large(picture):
        return write(picture, look)
    return write(picture, look, placed_parts(picture, look))


def placed_parts(picture: Picture, look: Look) -> PicturePlacement:
    """Return where the parts of a picture are.

    Raises:
        InputError: `dot` fails.
    """
    [placement] = positions([picture], look)
    if look.cornered and not is_large(picture):
        route(picture, placement, look)
    return placement


def sketch(
    graph: Graph,
    form: Form = "folded",
    *,
    style: Style = "plain",
    residuals: bool = False,
    node: str = "",
) -> tuple[Picture, Look]:
    """Return the picture of a graph before anything is placed, and how it is written.

    The arguments are those of `diagram`.

    Raises:
        InputError: as for `diagram`.
    """
    view = View(form=form, style=style, residuals=residuals, node=node)
    view.check()
    graph = numbered_apart(marked_frozen(graph))
    if not node:
        return _whole(graph, view)
    inside = find(graph, node)
    if isinstance(inside, Graph):
        return _whole(inside, view)
    if isinstance(inside, Scope):
        return _template(graph, inside, view)
    return _block(graph, inside, view)


def draw(
    graph: Graph,
    out: Path,
    form: Form = "folded",
    *,
    style: Style = "plain",
    residuals: bool = False,
    node: str = "",
) -> Path:
    """Write the diagram of a graph to a file; the suffix selects the format.

    The arguments are those of `diagram`.  A page, .html, folds by itself and takes `node` only.

    Raises:
        InputError: the suffix is unknown, `dot` is not installed, the file cannot be written, or
            as for `diagram`.
    """
    suffix = check_suffix(Path(out), (*SUFFIXES, "tex", "html"))
    if suffix == "html":
        text = draw_page(graph, form, style=style, residuals=residuals, node=node)
        write_beside(Path(out), text.encode(), "page")
        return Path(out)
    picture, look = sketch(graph, form, style=style, residuals=residuals, node=node)
    if suffix == "tex":
        text = tikz(picture, look, placed_parts(picture, look))
        write_beside(Path(out), text.encode(), "diagram")
        return Path(out)
    return write_picture(figure(picture, look), Path(out))


def draw_page(
    graph: Graph,
    form: Form = "folded",
    *,
    style: Style = "plain",
    residuals: bool = False,
    node: str = "",
) -> str:
    """Return the page of a graph, an HTML text; the arguments are those of `draw`.

    Raises:
        InputError: a setting has no effect on a page, or the node is not a model.
    """
    view = View(form=form, style=style, residuals=residuals, node=node)
    return page(_of_page(graph, view))


def _of_page(graph: Graph, view: View) -> Graph:
    """Return the graph that a page draws.

    Raises:
        InputError: a setting has no effect on a page, or the node is not a model.
    """
    for idle, setting in (
        (view.form != "folded", "form"),
        (view.style != "plain", "style"),
        (view.residuals, "residuals"),
    ):
        if idle:
            raise InputError(
                f"{setting} has no effect on a page, which folds and shows types by itself",
                location=setting,
                help="leave it out, or write a .svg file",
            )
    inside = find(graph, view.node) if view.node else graph
    if not isinstance(inside, Graph):
        raise InputError(
            f"a page draws a complete model, and '{view.node}' is none",
            location="node",
            help="leave it out and unfold the node in the page, or write a .svg file",
        )
    return inside


def _whole(graph: Graph, view: View) -> tuple[Picture, Look]:
    """Return the diagram of a complete graph."""
    _check_scope(graph.root, view, graph)
    paper = view.style == "paper"
    picture = lay_out_graph(
        graph, unfolded=view.form == "expanded", residuals=view.residuals or paper
    )
    tooltip = graph.doc or graph.name
    if paper:
        restyle(picture, graph)
        return picture, look_of(picture, graph.name, tooltip)
    _note_losses(picture, graph)
    heading, typed = _heading(graph), view.form == "typed"
    cornered = view.residuals
    return picture, Look(
        name=graph.name, tooltip=tooltip, heading=heading, typed=typed, cornered=cornered
    )


def _template(graph: Graph, scope: Scope, view: View) -> tuple[Picture, Look]:
    """Return the diagram of the inside of a template."""
    _check_scope(scope, view, graph)
    paper = view.style == "paper"
    unfolded = view.form == "expanded"
    picture = lay_out(scope, unfolded=unfolded, residuals=view.residuals or paper)
    name = f"{graph.name} {view.node}"
    tooltip = scope.doc or name
    if paper:
        restyle(picture, None)
        return picture, look_of(picture, name, tooltip)
    again = sum(prod(scope.shape_of(p) or (0,)) for group in scope.ties for p in group[1:])
    size = f"{count_words(scope.parameters() - again)} parameters"
    heading = (view.node, f"{scope.name.replace('_', ' ')} of {graph.name}", size)
    typed = view.form == "typed"
    cornered = view.residuals
    return picture, Look(
        name=name, tooltip=tooltip, heading=heading, typed=typed, cornered=cornered
    )


def _block(graph: Graph, part: Part, view: View) -> tuple[Picture, Look]:
    """Return the diagram of the operations in a block.

    Raises:
        InputError: a setting has no effect there.
    """
    for enabled, setting in ((view.form != "folded", "form"), (view.residuals, "residuals")):
        if enabled:
            raise InputError(
                f"{setting} has no effect on the inside of '{view.node}', a block",
                location=setting,
                help="leave it out",
            )
    picture, name = lay_out_block(part, view.node), f"{graph.name} {view.node}"
    if view.style == "paper":
        restyle(picture, None)
        return picture, look_of(picture, name, part.block.doc)
    size = sum(map(_count, part.weights().values()))
    heading = (view.node, f"{part.key} of {graph.name}", f"{count_words(size)} parameters")
    return picture, Look(name=name, tooltip=part.block.doc, heading=heading)


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _has_residuals(scope: Scope) -> bool:
    """Return whether a block below a scope has a residual path around what fills its slot."""
    return any(node.part.block.bands is not None for _, node, _, _ in placed(scope))


def _check_scope(scope: Scope, view: View, graph: Graph) -> None:
    """Check that settings have an effect, and that a picture has a bounded number of boxes.

    Raises:
        InputError: there are too many, dot would take minutes; or there is no residual path.
    """
    if view.residuals and not _has_residuals(scope):
        raise InputError(
            f"residuals has no effect, because no block of {graph.name} has a residual path",
            location=graph.source,
            help="leave it out",
        )
    count = sum(runs for _, _, runs, _ in placed(scope))
    if view.form == "expanded" and count > MOST_BOXES:
        raise InputError(
            f"the expanded picture would have {count:,} boxes, more than {MOST_BOXES:,}",
            location=graph.source,
            help="draw the folded or typed form, or fewer copies, as with --set layers=4",
        )


def _note_losses(picture: Picture, graph: Graph) -> None:
    """Add the weights of the losses of an objective to their names."""
    if any(holds_model(node) for scope in scopes(graph.root) for node in scope.nodes):
        for name, weight in graph.losses.items():
            box = picture.boxes[f"output/{name}"]
            box.words = replace(box.words, title=f"{box.words.title} × {weight:g}")


def _heading(graph: Graph) -> tuple[str, ...]:
    """Return the title: name, size, and the nodes that share one weight."""
    notes = [f"{count_words(graph.parameters())} parameters"]
    if len(graph.ties) == 1:
        nodes = [*dict.fromkeys(find_weight(graph.root, name).path for name in graph.ties[0])]
        if 1 < len(nodes) <= MOST_NAMED:
            notes.append(f"{', '.join(nodes[:-1])} and {nodes[-1]} share one weight")
    return (graph.name, *notes)
