"""Diagram: draw a graph in the style of Figure 1 of "Attention Is All You Need".

Each template is a frame, drawn once and marked with its number of copies.  `layout.py` decides
what is drawn, `labels.py` the text of boxes, and `writer.py` how they look; `paper.py` is the
style of the paper's own figures, and `inside.py` draws one node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Literal

import graphviz

from ...specs.files import write_beside
from ...specs.findings import InputError
from ..ir.canonical import numbered_apart
from ..ir.graph import Graph, Part, Scope
from ..ir.traverse import find_weight, holds_model, placed, scopes
from .inside import find, lay_out_block
from .labels import count_words
from .layout import lay_out, lay_out_graph
from .paper import look_of, restyle
from .picture import Picture
from .render import SUFFIXES, check_suffix, write_picture
from .scene.page import page
from .writer import Look, write

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
                place="form",
                help="use the form 'folded', or the style 'plain'",
            )
        if self.style == "paper" and self.residuals:
            raise InputError(
                "residuals has no effect, because the style 'paper' always draws residual arrows",
                place="residuals",
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
    """Return the diagram of a graph; equal graphs give equal DOT text.

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
    view = View(form=form, style=style, residuals=residuals, node=node)
    view.check()
    graph = numbered_apart(graph)
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
    if check_suffix(Path(out), (*SUFFIXES, "html")) == "html":
        text = draw_page(graph, form, style=style, residuals=residuals, node=node)
        write_beside(Path(out), text.encode(), "page")
        return Path(out)
    picture = diagram(graph, form, style=style, residuals=residuals, node=node)
    return write_picture(picture, Path(out))


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
                place=setting,
                help="leave it out, or write a .svg file",
            )
    inside = find(graph, view.node) if view.node else graph
    if not isinstance(inside, Graph):
        raise InputError(
            f"a page draws a complete model, and '{view.node}' is none",
            place="node",
            help="leave it out and unfold the node in the page, or write a .svg file",
        )
    return inside


def _whole(graph: Graph, view: View) -> graphviz.Digraph:
    """Return the diagram of a complete graph."""
    _check_scope(graph.root, view, graph)
    paper = view.style == "paper"
    picture = lay_out_graph(
        graph, unfolded=view.form == "expanded", residuals=view.residuals or paper
    )
    tooltip = graph.doc or graph.name
    if paper:
        restyle(picture, graph)
        return write(picture, look_of(graph.name, tooltip))
    _note_losses(picture, graph)
    heading, typed = _heading(graph), view.form == "typed"
    return write(picture, Look(name=graph.name, tooltip=tooltip, heading=heading, typed=typed))


def _template(graph: Graph, scope: Scope, view: View) -> graphviz.Digraph:
    """Return the diagram of the inside of a template."""
    _check_scope(scope, view, graph)
    paper = view.style == "paper"
    unfolded = view.form == "expanded"
    picture = lay_out(scope, unfolded=unfolded, residuals=view.residuals or paper)
    name = f"{graph.name} {view.node}"
    tooltip = scope.doc or name
    if paper:
        restyle(picture, None)
        return write(picture, look_of(name, tooltip))
    again = sum(prod(scope.shape_of(p) or (0,)) for group in scope.ties for p in group[1:])
    size = f"{count_words(scope.parameters() - again)} parameters"
    heading = (view.node, f"{scope.name.replace('_', ' ')} of {graph.name}", size)
    typed = view.form == "typed"
    return write(picture, Look(name=name, tooltip=tooltip, heading=heading, typed=typed))


def _block(graph: Graph, part: Part, view: View) -> graphviz.Digraph:
    """Return the diagram of the operations in a block.

    Raises:
        InputError: a setting has no effect there.
    """
    for given, setting in ((view.form != "folded", "form"), (view.residuals, "residuals")):
        if given:
            raise InputError(
                f"{setting} has no effect on the inside of '{view.node}', a block",
                place=setting,
                help="leave it out",
            )
    picture, name = lay_out_block(part, view.node), f"{graph.name} {view.node}"
    if view.style == "paper":
        restyle(picture, None)
        return write(picture, look_of(name, part.block.doc))
    size = sum(map(_count, part.weights().values()))
    heading = (view.node, f"{part.key} of {graph.name}", f"{count_words(size)} parameters")
    return write(picture, Look(name=name, tooltip=part.block.doc, heading=heading))


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
            place=graph.source,
            help="leave it out",
        )
    count = sum(runs for _, _, runs, _ in placed(scope))
    if view.form == "expanded" and count > MOST_BOXES:
        raise InputError(
            f"the expanded picture would have {count:,} boxes, more than {MOST_BOXES:,}",
            place=graph.source,
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
