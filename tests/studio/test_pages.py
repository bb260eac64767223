"""Pages of drawings from disk, large models, and pictures."""

from __future__ import annotations

import html
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import weft

ATTENTION = '[data-id="node/encoder.*.self_attention"]'


@pytest.fixture
def drawn(page: Any, tmp_path: Path) -> Callable[..., Any]:
    """Return a function that opens the page of a spec from disk."""

    def open_page(spec: Any) -> Any:
        out = weft.draw(spec, tmp_path / "drawing.html")
        page.goto(out.as_uri())
        page.wait_for_selector("svg .box")
        return page

    return open_page


def test_a_page_works_from_disk(drawn: Callable[..., Any]) -> None:
    """It folds, searches and shows heat, and asks nothing of a network."""
    page = drawn("transformer-base")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.click('[data-fold="fold decoder"]')
    page.wait_for_selector('[data-id="node/decoder"]')
    page.select_option("[aria-label=heat]", "flops")
    assert "MFLOPs" in page.inner_text(".legend") or "FLOPs" in page.inner_text(".legend")
    page.click("text=masks")
    assert page.locator("svg path[stroke-dasharray]").count() == 0
    assert asked == []


def test_a_notebook_shows_the_page_in_a_frame(page: Any, tmp_path: Path) -> None:
    """It folds and saves files, and has no access to the document around it."""
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<h1>notebook</h1>{weft.draw('transformer-base')._repr_html_()}")
    page.goto(notebook.as_uri())
    frame = page.frame_locator("iframe")
    frame.locator('[data-fold="fold decoder"]').click()
    frame.locator('[data-id="node/decoder"]').wait_for()
    for kind in ("SVG", "PNG", "PDF"):
        with page.expect_download() as found:
            frame.locator(f"button:text-is('{kind}')").click()
        assert found.value.suggested_filename == f"transformer-base.{kind.lower()}"
    inner = page.frames[1]
    assert inner.evaluate(
        "() => { try { return parent.document.title; } catch { return 'refused'; } }"
    ) == ("refused")


def test_what_is_seen_is_saved_as_svg_and_png(drawn: Callable[..., Any], tmp_path: Path) -> None:
    """Both files have the drawing; the SVG needs no style sheet."""
    page = drawn("transformer-base")
    with page.expect_download() as found:
        page.click("button:text-is('PNG')")
    found.value.save_as(tmp_path / "x.png")
    content = (tmp_path / "x.png").read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(content) > 20_000
    with page.expect_download() as found:
        page.click("button:text-is('SVG')")
    found.value.save_as(tmp_path / "x.svg")
    svg = (tmp_path / "x.svg").read_text()
    assert "multi-head attention" in svg
    assert "class=" not in svg.replace('class="box"', "")


def test_what_is_seen_is_saved_as_a_pdf_of_vectors(
    drawn: Callable[..., Any], tmp_path: Path
) -> None:
    """The page has the size of the drawing, its texts are texts, and nothing is an image."""
    page = drawn("transformer-base")
    page.click("text=types")
    with page.expect_download() as found:
        page.click("button:text-is('SVG')")
    found.value.save_as(tmp_path / "x.svg")
    with page.expect_download() as found:
        page.click("button:text-is('PDF')")
    found.value.save_as(tmp_path / "x.pdf")
    content = (tmp_path / "x.pdf").read_bytes()

    starts = [int(line.split()[0]) for line in re.findall(rb"\d{10} 00000 n", content)]
    assert [content[place:].split(b" ")[0] for place in starts] == [
        str(number).encode() for number in range(1, len(starts) + 1)
    ]
    start = int(content.rpartition(b"startxref\n")[2].split()[0])
    assert content[start:].startswith(b"xref")
    svg = (tmp_path / "x.svg").read_text()
    size = re.search(r'width="([\d.]+)" height="([\d.]+)"', svg)
    box = re.search(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", content)
    assert size is not None
    assert box is not None
    assert [float(value) for value in box.groups()] == [float(value) for value in size.groups()]
    packed = content.partition(b"stream\n")[2].partition(b"\nendstream")[0]
    drawing = zlib.decompress(packed).decode("latin-1")
    texts = [bytes.fromhex(word).decode("cp1252") for word in re.findall(r"<(\w+)> Tj", drawing)]
    shown = re.findall(r"<text[^>]*>([^<]+)</text>", svg)
    assert set(texts) == set(map(html.unescape, shown))
    assert "multi-head attention" in texts
    assert "f[B S 512]" in texts
    # The origin of a PDF is the lower left corner; texts stand where those of the SVG do.
    assert drawing.startswith(f"1 0 0 -1 0 {size[2]} cm")
    places = re.findall(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*>× 6</text>', svg)
    written = re.findall(r" 1 0 0 -1 ([\d.]+) ([\d.]+) Tm <d72036> Tj", drawing)
    assert len(written) == 2
    assert [tuple(map(float, one)) for one in written] == [
        pytest.approx(tuple(map(float, one)), abs=0.01) for one in places
    ]
    visible = svg.count("<rect") - svg.count('fill="transparent"')
    assert drawing.count(" re ") + drawing.count(" c h ") == visible
    assert b"/Image" not in content


def _pdf_with(page: Any, text: str, path: Path) -> bytes:
    """Return the PDF of a drawing whose first text is another one."""
    page.evaluate(
        "text => { const old = XMLSerializer.prototype.serializeToString;"
        " XMLSerializer.prototype.serializeToString = function (node) {"
        "   node.querySelector('text').textContent = text;"
        "   return old.call(this, node); }; }",
        text,
    )
    with page.expect_download() as found:
        page.click("button:text-is('PDF')")
    found.value.save_as(path)
    return path.read_bytes()


def _drawing(content: bytes) -> str:
    """Return what a PDF draws."""
    packed = content.partition(b"stream\n")[2].partition(b"\nendstream")[0]
    return zlib.decompress(packed).decode("latin-1")


def test_signs_of_other_fonts_are_in_the_pdf(drawn: Callable[..., Any], tmp_path: Path) -> None:
    """A snowflake and a Greek letter have a code in Zapf Dingbats and Symbol."""
    content = _pdf_with(drawn("transformer-base"), "\u2744 \u03b1", tmp_path / "x.pdf")
    drawing = _drawing(content)
    assert re.search(r"/Z \d+ Tf [^T]*Tm <64>", drawing)
    assert re.search(r"/S [\d.]+ Tf [^T]*Tm <61>", drawing)
    assert b"/Type3" not in content


def test_other_characters_are_outlines_in_the_pdf(
    drawn: Callable[..., Any], tmp_path: Path
) -> None:
    """Words of another script are glyphs that can be copied; a full block is a rectangle."""
    texts = ["\u0441\u043b\u043e\u0439", "\u2588", "e\u0301", "\u6f22"]
    content = _pdf_with(drawn("transformer-base"), " ".join(texts), tmp_path / "x.pdf")
    starts = [int(line.split()[0]) for line in re.findall(rb"\d{10} 00000 n", content)]
    objects = [content[at : content.index(b"endobj", at)].decode("latin-1") for at in starts]
    [font] = [each for each in objects if "/Subtype /Type3" in each]
    number = objects.index(font) + 1
    assert f"/U0 {number} 0 R" in objects[2]
    mapped = re.findall(r"^<(\w\w)> <(\w+)>$", objects[number], re.MULTILINE)
    assert [bytes.fromhex(text).decode("utf-16-be") for _, text in mapped] == texts
    codes = "".join(re.findall(r"/U0 [\d.]+ Tf [^T]*Tm <(\w+)> Tj", _drawing(content)))
    assert codes == "".join(code for code, _ in mapped)
    for line in objects[number:]:  # each stream has the length that it names
        size = re.search(r"/Length (\d+) >>\nstream\n", line)
        assert size is None or line[size.end() + int(size[1]) :].startswith("\nendstream")
    glyphs = [each for each in objects if re.search(r" d1\n", each)]
    assert len(glyphs) == len(texts)
    # The outline of a full block has the area of the box around it; that of a letter does not.
    assert _covered(glyphs[1]) == pytest.approx(1, abs=0.02)
    assert 0.1 < _covered(glyphs[2]) < 0.8


def _covered(glyph: str) -> float:
    """Return the share of the box around a glyph that lies inside its outlines."""
    lines = [line for line in glyph.split("\n") if line.endswith(" h")]
    area, every = 0.0, []
    for line in lines:
        numbers = [float(word) for word in re.findall(r"-?[\d.]+", line)]
        points = list(zip(numbers[::2], numbers[1::2], strict=True))
        every += points
        turned = [*points[1:], points[0]]
        area += sum(x * v - u * y for (x, y), (u, v) in zip(points, turned, strict=True)) / 2
    sides = [max(each) - min(each) for each in zip(*every, strict=True)]
    return abs(area) / (sides[0] * sides[1])


def test_a_thousand_nodes_are_drawn_and_moved(drawn: Callable[..., Any], tmp_path: Path) -> None:
    """1,000 written nodes are drawn, and the page still answers."""
    nodes: dict[str, Any] = {}
    last = "x"
    for index in range(1000):
        nodes[f"n{index}"] = {"use": "layer_norm@1", "in": {"x": last}}
        last = f"n{index}.y"
    value = {
        "format": 1, "name": "tall", "axes": {"B": "batch"}, "inputs": {"x": "f[B 8]"},
        "outputs": {"y": last}, "nodes": nodes,
    }  # fmt: skip
    (tmp_path / "tall.json").write_text(json.dumps(value))
    page = drawn(tmp_path / "tall.json")
    count = page.evaluate(
        "JSON.parse(document.getElementById('scene').textContent).states[''].boxes.length"
    )
    assert count == 1002
    page.fill("[type=search]", "n777")
    page.press("[type=search]", "Enter")
    page.wait_for_selector('[data-id="node/n777"]')
    assert "n777" in page.inner_text(".inspector")
