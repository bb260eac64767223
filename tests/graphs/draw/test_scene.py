"""Scenes and pages: the layout of the SVG as data, in one file that runs nothing of a spec."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import re
from pathlib import Path

import pytest
from weft.graphs.draw import positions as positions_module
from weft.graphs.draw.diagram import diagram, draw
from weft.graphs.draw.html_page import page
from weft.graphs.draw.picture import Folds
from weft.graphs.draw.render import svg_of
from weft.graphs.draw.scene import key_of, page_states, read_key, scene
from weft.graphs.ir.graph import Graph
from weft.runtime.spec.check import graph_of
from weft.specs.findings import InputError
from weft.specs.load import loaded


@pytest.fixture(scope="module")
def base() -> Graph:
    """Return the graph of transformer-base."""
    return graph_of("transformer-base")


class Elements(html.parser.HTMLParser):
    """Collects the texts of elements."""

    def __init__(self) -> None:
        """Begin with no elements."""
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin an element."""
        self.found.append((tag, dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        """Add text to the last element."""
        tag, attrs, text = self.found[-1] if self.found else ("", {}, "")
        self.found[-1:] = [(tag, attrs, text + data)]


def test_positions_are_those_of_the_svg(base: Graph) -> None:
    """Positions are those of the svg."""
    drawing = scene(base)["states"][""]
    svg = svg_of(diagram(base))
    # The SVG has a heading and another origin, so compare distances between the wires' arrows.
    starts = [
        tuple(map(float, found))
        for found in re.findall(
            r'<path fill="none" stroke="#22262b"[^>]* d="M([-\d.]+),([-\d.]+)C', svg
        )
    ]
    own = [
        tuple(map(float, wire["d"][1:].split("C")[0].split(",")))
        for wire in drawing["wires"]
        if not wire.get("mask")
    ]
    assert len(own) == len(starts) == 12
    (x, y), (to_x, to_y) = min(own), min(starts)
    moved = sorted((round(a - x + to_x), round(b - y + to_y)) for a, b in own)
    expected = sorted((round(a), round(b)) for a, b in starts)
    assert all(abs(a - c) + abs(b - d) <= 1 for (a, b), (c, d) in zip(moved, expected, strict=True))


def test_folds_draw_one_box_or_every_copy(base: Graph) -> None:
    """Folds draw one box or every copy."""
    folds = Folds(frozenset({"encoder"}), frozenset({"decoder"}))
    key = key_of(folds)
    assert read_key(key) == folds
    drawing = scene(base, [folds])["states"][key]
    nodes = {box["id"]: box for box in drawing["boxes"] if box["id"].startswith("node/")}
    assert "6 × encoder layer" in " ".join(nodes["node/encoder"]["lines"])
    assert not any(name.startswith("node/encoder.") for name in nodes)
    assert sum(".cross_attention" in name for name in nodes) == 6
    # Every copy has the facts of the template.
    assert nodes["node/decoder.3.cross_attention"]["fact"] == "decoder.*.cross_attention"


def test_facts_have_costs_and_places(base: Graph) -> None:
    """Facts have costs and places."""
    found = scene(base, sizes={"B": 2, "T": 8})
    facts = found["facts"]["decoder.*.cross_attention/f"]
    assert facts["at"] == "/blocks/decoder_layer/nodes/cross_attention/fill/f"
    # Four maps of 512 x 512 with biases.
    assert facts["each"] == 4 * (512 * 512 + 512)
    assert found["facts"]["head"]["outputs"] == {"y": "f[B T 37000] = [2, 8, 37000]"}
    # A multiplication and an addition for each weight and position.
    assert found["facts"]["head"]["flops"] == 2 * 2 * 8 * 512 * 37000
    with pytest.raises(InputError, match="no axis 'X'"):
        scene(base, sizes={"X": 3})


def test_params_have_meanings_and_choices(base: Graph) -> None:
    """A list to choose from where there are few values."""
    params = scene(base)["params"]

    assert params["sublayer@1"]["order"]["choices"] == ["post", "pre", "sandwich"]
    assert params["attention@1"]["causal"]["choices"] == [False, True]
    assert params["attention@1"]["heads"]["choices"] == []
    assert all(param["doc"] for block in params.values() for param in block.values())


def test_alternating_copies_have_facts() -> None:
    """Alternating copies have facts."""
    drawing = scene(graph_of("gemma2"))["states"][""]
    assert all("fact" in box for box in drawing["boxes"] if box["id"].startswith("node/"))


def test_without_dot_the_grid_places_boxes(base: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without dot the grid places boxes."""

    def missing(_: str) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(positions_module, "_dot", missing)
    drawing = scene(base)["states"][""]
    assert len(drawing["boxes"]) == 14
    tops = {box["id"]: box["at"][1] for box in drawing["boxes"]}
    assert tops["output/logits"] < tops["node/head"] < tops["input/target"]


def test_a_page_allows_its_own_script_and_nothing_else(base: Graph) -> None:
    """A page allows its own script and nothing else."""
    text = page(base)
    found = Elements()
    found.feed(text)
    policy = (
        next(attrs["content"] for tag, attrs, _ in found.found if attrs.get("http-equiv")) or ""
    )
    script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    [style] = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert len(script) == 1
    for kind, content in (("script", script[0]), ("style", style)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert not re.search(r'(src|href)="', text)


def test_texts_of_a_spec_are_data() -> None:
    """Texts of a spec are data."""
    doc = "</script><script>alert(1)</script><!-- \u2028 &lt;"
    value = {
        "format": 1, "name": "x", "doc": doc, "axes": {"B": "batch"}, "inputs": {"x": "f[B 3]"},
        "outputs": {"y": "n.y"},
        "nodes": {"n": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": 2}}},
    }  # fmt: skip
    text = page(graph_of(loaded(value)))
    assert text.count("</script>") == 2
    assert "alert(1)</" not in text
    [data] = re.findall(r'id="scene">(.*?)</script>', text, re.DOTALL)
    assert json.loads(data)["doc"] == doc


def test_states_of_a_page_are_bounded() -> None:
    """States of a page are bounded."""
    states = page_states(graph_of("transformer-base"))
    # Two repeats, each closed, drawn once, or with every copy.
    assert len(states) == 9
    assert states[0] == Folds()


@pytest.mark.parametrize(
    "settings", [{"form": "typed"}, {"style": "paper"}, {"residuals": True}, {"node": "head"}]
)
def test_settings_without_effect_on_a_page_are_refused(
    base: Graph, tmp_path: Path, settings: dict[str, str]
) -> None:
    """Settings without effect on a page are refused."""
    with pytest.raises(InputError):
        draw(base, tmp_path / "x.html", **settings)  # type: ignore[arg-type]
    assert not [*tmp_path.iterdir()]
