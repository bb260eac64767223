"""The catalogue lists every shipped spec and block, and is up to date."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import graphviz
import pytest
from catalogue import (
    FIGURES,
    PAGE,
    PICTURES,
    digest_of,
    digest_of_source,
    figures,
    form_of,
    page,
    picture,
    systems,
    write,
)
from weft.blocks.registry import standard
from weft.graphs.draw.diagram import diagram
from weft.graphs.draw.writer import write as dot_of
from weft.runtime.spec.check import graph_of

DOCS = Path(__file__).parents[2] / "docs"
LARGEST = 160_000
"""Most bytes in a picture."""


@pytest.mark.integration
def test_the_page_is_of_today() -> None:
    """If this fails, run `make catalogue`."""
    assert (DOCS / PAGE).read_text(encoding="utf-8") == page(), "run make catalogue"


@pytest.mark.integration
def test_every_picture_is_of_today_and_no_other_is_there() -> None:
    """Pictures are compared by the digest of their source, not by graphviz's output."""
    wanted = {system.name: system.digest() for system in systems() if system.drawn}
    found = {path.stem: digest_of(path) for path in (DOCS / PICTURES).glob("*.svg")}

    assert found == wanted, "run make catalogue"
    assert [p.name for p in (DOCS / PICTURES).iterdir() if p.stat().st_size > LARGEST] == []


def test_every_figure_is_of_today_and_is_shown() -> None:
    """The page on drawing shows each of them, and has no other picture."""
    wanted = {name: digest_of_source(dot_of(*parts).source) for name, parts in figures().items()}
    found = {path.stem: digest_of(path) for path in (DOCS / FIGURES).glob("*.svg")}
    text = (DOCS / "drawing.md").read_text(encoding="utf-8")

    assert found == wanted, "run make catalogue"
    assert set(re.findall(rf'src="{FIGURES}/(.*?)\.svg"', text)) == set(wanted)


@pytest.mark.integration
def test_every_link_of_the_page_leads_somewhere() -> None:
    """Each link points to an existing picture, folder or heading."""
    text = page()
    headings = re.findall(r"^### (.*)$", text, re.MULTILINE)

    # An anchor is the heading without dots.
    assert set(re.findall(r"\]\(#(.*?)\)", text)) == {one.replace(".", "") for one in headings}
    assert all((DOCS / path).exists() for path in re.findall(r"\]\((\.\./.*?)\)", text))
    assert all(f"| `{block.key}` |" in text for block in standard())


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("transformer-base", "encoder-decoder: attention"),
        ("gnmt-small", "encoder-decoder: additive attention, recurrence"),
        ("llama", "decoder: attention"),
        ("bert", "encoder: attention"),
        ("vit", "encoder: attention, pictures"),
    ],
)
def test_the_form_follows_from_the_graph(name: str, form: str) -> None:
    """The form is derived, not written by hand."""
    assert form_of(graph_of(name)) == form


@pytest.mark.integration
def test_a_picture_is_complete_and_begins_with_its_digest() -> None:
    """The picture has all labels, and numbers with at most one decimal."""
    if shutil.which("dot") is None:
        pytest.skip("pictures need graphviz's dot")
    [system] = [system for system in systems() if system.name == "transformer-tiny"]

    text = picture(diagram(system.graph), system.digest())

    assert text.startswith(f"<!-- {system.digest()} -->\n<svg ")
    assert text.rstrip().endswith("</svg>")
    assert "2.6M parameters" in text
    assert re.search(r'"[^"<>]*\d\.\d\d', text) is None


@pytest.mark.integration
def test_only_stale_pictures_are_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pictures of removed specs are deleted."""
    drawn = []

    def draw(drawing: graphviz.Digraph, digest: str) -> str:
        drawn.append(drawing.name)
        return f"<!-- {digest} -->\n"

    monkeypatch.setattr("catalogue.picture", draw)
    write(tmp_path)
    (tmp_path / PICTURES / "gone.svg").write_text("<!-- 12 -->")
    (tmp_path / PICTURES / "bert.svg").write_text("<!-- 12 -->")
    (tmp_path / FIGURES / "figure-1.svg").write_text("<!-- 12 -->")
    drawn.clear()

    write(tmp_path)

    assert drawn == ["bert", "transformer-base"]
    assert not (tmp_path / PICTURES / "gone.svg").exists()
    assert (tmp_path / PAGE).read_text(encoding="utf-8") == page()
