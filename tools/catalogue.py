"""Write the catalogue page of all shipped specs and blocks, and pictures (`make catalogue`).

Each picture begins with a digest of its source, so that a test can detect stale pictures without
graphviz.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import graphviz
from weft.blocks.registry import standard
from weft.graphs.draw.diagram import diagram, figure, sketch
from weft.graphs.draw.picture import Picture
from weft.graphs.draw.render import write_picture
from weft.graphs.draw.writer import Look
from weft.graphs.draw.writer import write as dot_of
from weft.graphs.ir.block_type import BlockType
from weft.graphs.ir.graph import Graph, Part
from weft.graphs.ir.traverse import visits
from weft.graphs.passes.merge import merged
from weft.runtime.spec.check import graph_of
from weft.specs.files import write_beside
from weft.specs.reader import SHIPPED, read_json

PAGE, PICTURES = "catalogue.md", "catalogue"
"""Name of the page, and of the folder of pictures next to it."""
FIGURES = "figures"
"""Name of the folder of the pictures in docs/drawing.md."""
README_PICTURE = "transformer-base"
"""Name of the picture that the README shows, as PNG, because PyPI does not show every SVG."""
ROWS_OF_A_TABLE = "table3-"
"""Name prefix of specs that differ from transformer-base only in numbers; no pictures."""
TITLES = {"models": "Models", "variants": "Variants", "pretrained": "Pretrained models"}
"""Folder of specs to the heading of its table."""
FONT = "Helvetica,Arial,sans-serif"
_NUMBER = re.compile(r"\d+\.\d+")

HEAD = """# Catalogue

Written by `make catalogue`; `tests/tools/test_catalogue.py` fails when this page is out of date.
Open a system by its name, such as `weft show bert`; it is a JSON file under
[`specs/models/`](../specs/models/), [`specs/variants/`](../specs/variants/) or
[`specs/pretrained/`](../specs/pretrained/), whose weights are [imported](importing.md). The
number of parameters is that of the default sizes, checked against hand counts in
`tests/runtime/models/`, or against published ones. The form follows from axes and blocks. The
lines are those of the file, in addition to its parent spec.
"""


@dataclass(frozen=True, slots=True)
class System:
    """A shipped spec."""

    name: str
    folder: str
    """`models`, `variants` or `pretrained`."""
    graph: Graph
    lines: int
    parent: str
    """Name of the spec that it extends, or ``""``."""
    dot: str = field(repr=False)
    """Graphviz source of its picture."""

    @property
    def drawn(self) -> bool:
        """Whether it has a picture of its own."""
        return not self.name.startswith(ROWS_OF_A_TABLE) and self.folder != "pretrained"

    def digest(self) -> str:
        """Return the first digits of the hash of `dot`."""
        return digest_of_source(self.dot)


@functools.cache
def systems() -> tuple[System, ...]:
    """Return every shipped spec, by name: models, variants, then those of pretrained models."""
    shipped = []
    for folder in TITLES:
        for path in sorted((SHIPPED / folder).glob("*.json")):
            text = path.read_text(encoding="utf-8")
            parent = read_json(text, str(path)).get("extends", "")
            count, graph = len(text.splitlines()), graph_of(path.stem)
            dot = diagram(graph).source
            shipped.append(System(path.stem, folder, graph, count, parent, dot))
    return tuple(shipped)


def figures() -> dict[str, tuple[Picture, Look]]:
    """Return the pictures of docs/drawing.md by name, before they are placed."""
    base, gemma = graph_of("transformer-base"), graph_of("gemma2")
    return {
        "figure-1": sketch(base, style="paper"),
        "figure-2": sketch(base, style="paper", node="encoder.*.self_attention"),
        "positions": sketch(graph_of("t5"), style="paper"),
        "recurrent": sketch(graph_of("gnmt-small"), style="paper"),
        "objective": sketch(graph_of("r-drop-translation"), style="paper"),
        "residuals": sketch(base, residuals=True),
        "alternating": sketch(gemma),
        "attention": sketch(gemma, node="decoder.0.self_attention"),
    }


def form_of(graph: Graph) -> str:
    """Return the form of a graph: encoder, decoder or both, and how positions are mixed."""
    times = [axis for axis, kind in graph.spec.axes.items() if kind == "time"]
    if len(times) > 1 and (graph.step_axis or "target" in graph.inputs):
        form = "encoder-decoder"
    elif graph.step_axis:
        form = "decoder"
    else:
        form = "encoder"
    parts = (visit.part for visit in visits(merged(graph).root) if isinstance(visit.part, Part))
    words = {word for part in parts if (word := _word(part))}
    return f"{form}: {', '.join(sorted(words)) or 'pointwise'}"


def _word(part: Part) -> str:
    """Return the word that a block adds to the form of a system, or ""."""
    if part.block.mixes is not None:
        return part.block.mixes
    mixing = any(behavior != "pointwise" for behavior in part.signature.behavior.values())
    return part.block.name.replace("_", " ") if mixing else ""


def page() -> str:
    """Return the text of the catalogue."""
    all_ = systems()
    lines = [HEAD, f"{len(all_)} systems from {len(standard())} blocks.\n"]
    for folder, title in TITLES.items():
        lines += [
            f"## {title}\n",
            "| system | form | parameters | lines | description and source |",
            "|---|---|---|---|---|",
            *(_row(system) for system in all_ if system.folder == folder),
            "",
        ]
    lines += ["## Blocks\n", "| block | what it computes | source |", "|---|---|---|"]
    lines += [_block_row(block) for block in standard()]
    lines += ["\n## Pictures\n"]
    for system in all_:
        if system.drawn:
            picture = f'<img src="{PICTURES}/{system.name}.svg" alt="{system.name}" width="420">'
            lines.append(f"### {system.name}\n\n{picture}\n")
    return "\n".join(lines)


def _row(system: System) -> str:
    anchor = system.name.replace(".", "")  # as GitHub and mkdocs make it from the heading
    name = f"[{system.name}](#{anchor})" if system.drawn else system.name
    count = f"{system.lines} on {system.parent}" if system.parent else f"{system.lines}"
    cells = (name, form_of(system.graph), f"{system.graph.parameters():,}", count, system.graph.doc)
    return _cells(*cells)


def _block_row(block: BlockType) -> str:
    return _cells(f"`{block.key}`", block.doc, block.source)


def _cells(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def picture(drawing: graphviz.Digraph, digest: str) -> str:
    """Return a picture as SVG, preceded by the digest of its source before it is placed.

    Raises:
        InputError: graphviz's `dot` is not installed.
    """
    with tempfile.TemporaryDirectory() as folder:
        drawn = write_picture(drawing, Path(folder) / "drawn.svg")
        text = drawn.read_text(encoding="utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r"<!--.*?-->\n?|<title>.*?</title>\n?", "", text, flags=re.DOTALL)
    text = text.replace(f' font-family="{FONT}"', "")
    text = text.replace("<svg", f'<svg font-family="{FONT}"', 1)
    text = re.sub(r"<[^>]*>", lambda tag: _NUMBER.sub(_rounded, tag[0]), text)
    return f"<!-- {digest} -->\n{text}"


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}".removesuffix(".0")


def write(docs: Path) -> None:
    """Write the page and stale or missing pictures; remove pictures of unknown systems.

    Args:
        docs: folder of the documentation.

    Raises:
        InputError: graphviz's `dot` is not installed, or a file cannot be written.
    """
    drawn = {system.name: sketch(system.graph) for system in systems() if system.drawn}
    for folder, pictures in ((docs / PICTURES, drawn), (docs / FIGURES, figures())):
        for path in folder.glob("*.svg"):
            if path.stem not in pictures:
                path.unlink()
        for name, parts in pictures.items():
            path, digest = folder / f"{name}.svg", digest_of_source(dot_of(*parts).source)
            stale = digest_of(path) != digest
            if stale:
                write_beside(path, picture(figure(*parts), digest).encode(), "picture")
            if name == README_PICTURE and (stale or not (docs / f"{name}.png").is_file()):
                write_picture(figure(*parts), docs / f"{name}.png")
    write_beside(docs / PAGE, page().encode(), "catalogue")


def digest_of_source(dot: str) -> str:
    """Return the first digits of the hash of a picture's source."""
    return hashlib.sha256(dot.encode()).hexdigest()[:16]


def digest_of(path: Path) -> str | None:
    """Return the digest stored in a picture, or None."""
    if not path.is_file():
        return None
    match = re.match(r"<!-- (\w+) -->", path.read_text(encoding="utf-8"))
    return match[1] if match else None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of the page, such as docs")
    write(parser.parse_args().folder)
