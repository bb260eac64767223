"""Views of specs: a picture or a page of one, and the differences between two; no torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, overload

from ...graphs.diff import diff as of_graphs
from ...graphs.draw.diagram import Form, Style, draw_page
from ...graphs.draw.diagram import draw as draw_graph
from ...graphs.draw.diff import diff_picture
from ...graphs.draw.render import svg_of
from ...graphs.ir.block_type import BlockType
from ...graphs.ir.graph import Graph
from ...specs.findings import InputError, did_you_mean
from .check import Source, frame_html, graph_of, listed, note_html, text_html

_FORMS = ("folded", "typed", "expanded")
_STYLES = ("plain", "paper")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Diff(of_graphs.GraphDiff):
    """What changed from one spec to another; notebooks show a picture and the list of changes."""

    old: Graph = field(compare=False)
    new: Graph = field(compare=False)

    def __repr__(self) -> str:
        """Return the names and the number of changes."""
        count = len(self.changes)
        summary = "equal" if self.equal else f"{count} change{'s' * (count != 1)}"
        return f"<Diff {self.names[0]} -> {self.names[1]}: {summary}>"

    def _repr_html_(self) -> str:
        """Return the picture, if `dot` is installed, and the changes as text."""
        try:
            picture = f"<div>{svg_of(diff_picture(self.old, self.new, self))}</div>"
        except InputError as error:
            picture = note_html(f"no picture: {error.problem}")
        return picture + text_html(self.render())


@dataclass(frozen=True, slots=True, repr=False)
class Drawing:
    """A drawn spec; notebooks show it as a page that folds, searches and shows costs."""

    graph: Graph
    page: str
    """The page, as HTML that needs no other file."""

    def __repr__(self) -> str:
        """Return the name and the number of parameters."""
        return f"<Drawing {self.graph.name}: {self.graph.parameters():,} parameters>"

    def _repr_html_(self) -> str:
        """Return the page in a frame."""
        return frame_html(self.page, f"drawing of {self.graph.name}")


@overload
def draw(
    spec: Source | Graph,
    out: str | Path,
    form: Form = ...,
    *,
    style: Style = ...,
    residuals: bool = ...,
    node: str = ...,
    blocks: Iterable[BlockType] = ...,
) -> Path: ...


@overload
def draw(
    spec: Source | Graph,
    out: None = None,
    *,
    node: str = ...,
    blocks: Iterable[BlockType] = ...,
) -> Drawing: ...


def draw(
    spec: Source | Graph,
    out: str | Path | None = None,
    form: Form = "folded",
    *,
    style: Style = "plain",
    residuals: bool = False,
    node: str = "",
    blocks: Iterable[BlockType] = (),
) -> Path | Drawing:
    """Draw a spec.

    Args:
        spec: the result of `load`, a path, or a shipped name.
        out: the file to write; its suffix is .svg, .png, .pdf, .dot or .tex (TikZ), or .html for a
            page that folds, searches and shows costs; without a file, a notebook shows this page.
        form: `folded` draws a repeat as one box, `typed` adds the type of every wire, and
            `expanded` draws every layer and the templates in slots.
        style: `plain` writes params and masks, `paper` draws as in Figures 1 and 2 of Vaswani et
            al. 2017.
        residuals: whether residual paths are arrows around the boxes.
        node: path of a node, such as `decoder.*.self_attention`, to draw its inside instead.
        blocks: block types that the spec may use besides the installed ones.

    Returns:
        The path of the file; without one, the drawing.

    Raises:
        SpecError: the spec has errors; all of them are listed.
        InputError: the suffix, the form, the style or the node is unknown, settings have no effect
            together, `dot` is missing, or `blocks` cannot be used.
    """
    for name, choice, choices in (("form", form, _FORMS), ("style", style, _STYLES)):
        if choice not in choices:
            help_ = did_you_mean(str(choice), choices)
            raise InputError(f"no {name} '{choice}'", location=name, help=help_)
    graph = graph_of(spec, blocks)
    if out is None:
        page = draw_page(graph, form, style=style, residuals=residuals, node=node)
        return Drawing(graph, page)
    return draw_graph(graph, Path(out), form, style=style, residuals=residuals, node=node)


def diff(old: Source | Graph, new: Source | Graph, *, blocks: Iterable[BlockType] = ()) -> Diff:
    """Return the changes between two specs, and the weights that carry over.

    Args:
        old: the result of `load`, a path, or a shipped name.
        new: the spec to compare it with.
        blocks: block types that both specs may use besides the installed ones.

    Returns:
        The changes, each with its path; `render()` returns text, `as_json()` plain data.

    Raises:
        SpecError: one of the specs has errors; all of them are listed.
        InputError: a file does not exist, or `blocks` cannot be used.
    """
    added = listed(blocks)
    before, after = graph_of(old, added), graph_of(new, added)
    difference = of_graphs.diff(before, after)
    parts: dict[str, Any] = {
        attribute.name: getattr(difference, attribute.name) for attribute in fields(difference)
    }
    return Diff(**parts, old=before, new=after)
