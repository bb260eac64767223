"""Tests of pictures in LaTeX."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.draw.diagram import draw
from weft.specs.load import loaded

from ...latex import compiled
from .test_diagram import NEEDS_DOT, toy
from .test_figures import shipped

pytestmark = NEEDS_DOT


def written(graph: Any, folder: Path, **settings: Any) -> str:
    """Return the text of a picture."""
    return draw(graph, folder / "x.tex", **settings).read_text(encoding="utf-8")


def test_every_box_and_every_arrow_of_a_figure_is_written(tmp_path: Path) -> None:
    """Figure 1: 14 boxes in two frames, and two waves."""
    text = written(shipped("transformer-base"), tmp_path, style="paper")

    assert text.count("Add \\& Norm") == 5
    assert len(re.findall(r"\\draw\[fill=weft\w+, draw=\w+, rounded corners=5bp", text)) == 14
    assert len(re.findall(r"\\draw\[fill=\w+, draw=\w+, rounded corners=7bp", text)) == 2
    assert len(re.findall(r"circle\[radius=\d\d", text)) == 2  # waves
    assert text.startswith("% Needs \\usepackage{tikz}")


def test_equal_graphs_have_equal_text(tmp_path: Path) -> None:
    """Nothing in it depends on time or place."""
    first = written(toy(), tmp_path, style="paper")

    assert first == written(toy(), tmp_path, style="paper")


def test_text_is_escaped(tmp_path: Path) -> None:
    """Names and formulas of a spec from a stranger reach LaTeX as text alone."""
    spec = {
        "format": 1,
        "name": "a_b",
        "doc": "\\input{/etc/passwd}",
        "axes": {"B": "batch"},
        "inputs": {"x": "f[B 8]"},
        "outputs": {"y": "n.y"},
        "nodes": {
            "n": {"use": "elementwise@1", "in": {"x": "x"}, "params": {"y": "where(x < 1, x, 5)"}}
        },
    }

    text = written(check(loaded(spec).form, registry()), tmp_path)

    assert "input{/etc" not in text
    assert "a\\_b" in text
    assert "a_b" not in text
    assert "x $<$ 1" in text


@pytest.mark.integration
def test_a_page_with_figures_can_be_compiled(tmp_path: Path) -> None:
    """In the style of papers and in the other one, beside each other on a page."""
    draw(shipped("gnmt-small"), tmp_path / "figure.tex", style="paper")
    draw(shipped("transformer-tiny"), tmp_path / "plain.tex", form="typed")
    draw(shipped("gemma2"), tmp_path / "residuals.tex", residuals=True)

    body = (
        "\\resizebox{85mm}{!}{\\input{figure}}\n"
        "\\resizebox{!}{150mm}{\\input{plain}}\\resizebox{!}{150mm}{\\input{residuals}}"
    )
    compiled(tmp_path, body, "tikz")

    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
