"""Pages of drawings from disk, large models, and pictures."""

from __future__ import annotations

import json
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


def test_a_thousand_nodes_are_drawn_and_moved(drawn: Callable[..., Any], tmp_path: Path) -> None:
    """1,000 written nodes are drawn, and the page still answers."""
    nodes: dict[str, Any] = {}
    last = "x"
    for index in range(1000):
        nodes[f"n{index}"] = {"use": "activation@1", "in": {"x": last}}
        last = f"n{index}.y"
    value = {
        "format": 2, "name": "tall", "axes": {"B": "batch"}, "inputs": {"x": "f[B 8]"},
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
