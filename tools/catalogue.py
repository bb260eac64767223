"""Catalogue: every shipped spec and every block on one page, with pictures; `make catalogue`.

Each picture begins with a digest of what it was drawn from, so that a test can tell
without graphviz whether it is that of today's spec.
"""

from __future__ import annotations

import functools
import hashlib
import re
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from weft.blocks.registry import STANDARD
from weft.graphs.draw.diagram import diagram
from weft.graphs.draw.render import write_picture
from weft.graphs.ir.block_type import BlockType
from weft.graphs.ir.graph import Graph, Part
from weft.graphs.ir.traverse import visits
from weft.runtime.spec.check import graph_of
from weft.specs.files import write_beside
from weft.specs.reader import SHIPPED, read_json

PAGE, PICTURES = "catalogue.md", "catalogue"
"""The file, and the folder of pictures beside it."""
ROWS_OF_A_TABLE = "table3-"
"""Specs that differ from transformer-base in numbers alone: they have no picture."""
FONT = "Helvetica,Arial,sans-serif"
_NUMBER = re.compile(r"\d+\.\d+")

HEAD = """# Catalogue

Written by `make catalogue`; `tests/tools/test_catalogue.py` fails when this page is out of date.
Every system below opens by its name, such as `weft show bert`, and is a JSON file under
[`specs/models/`](../specs/models/) or [`specs/variants/`](../specs/variants/). Parameters are those
of its default sizes, counted by hand in `tests/runtime/models/`; its form follows from its axes and
blocks; lines are those of its file, on top of the spec that it extends.
"""
HEAD = """# Catalogue

Written by `make catalogue`; `tests/tools/test_catalogue.py` fails when this page is out of date.
Every system below opens by its name, such as `weft show bert`, and is a JSON file under
[`specs/models/`](../specs/models/) or [`specs/variants/`](../specs/variants/). Parameters are those
of its default sizes, counted by hand in `tests/runtime/models/`; its form follows from its axes and
blocks; lines are those of its file, on top of the spec that it extends.
"""
FORMS = {
    "multi_head": "attention",
    "additive": "additive attention",
    "block_sparse": "block sparse attention",
    "linear": "linear attention",
    "dot_product": "attention",
    "convolution": "convolution",
    "recurrent": "recurrence",
    "conv_gru": "convolutional recurrence",
    "mixture_of_experts": "mixture of experts",
    "image": "pictures",
    "audio": "sound",
    "pool": "",
    "combine": "",
}
"""File of a block to what it makes of a system; others that mix positions go by their file."""


@dataclass(frozen=True, slots=True)
class System:
    """A shipped spec."""

    name: str
    folder: str
    """`models` or `variants`."""
    graph: Graph
    lines: int
    parent: str
    """What it extends, or ``""``."""
    dot: str = field(repr=False)
    """What its picture is drawn from."""

    @property
    def drawn(self) -> bool:
        """Whether it has a picture of its own."""
        return not self.name.startswith(ROWS_OF_A_TABLE)

    def digest(self) -> str:
        """Return the first digits of the hash of `dot`."""
        return hashlib.sha256(self.dot.encode()).hexdigest()[:16]


@functools.cache
def systems() -> tuple[System, ...]:
    """Return every shipped spec, by name: models, then variants."""
    found = []
    for folder in ("models", "variants"):
        for path in sorted((SHIPPED / folder).glob("*.json")):
            text = path.read_text(encoding="utf-8")
            parent = read_json(text, str(path)).get("extends", "")
            count, graph = len(text.splitlines()), graph_of(path.stem)
            dot = diagram(graph).source
            found.append(System(path.stem, folder, graph, count, parent, dot))
    return tuple(found)


def form_of(graph: Graph) -> str:
    """Return what kind of system a graph is: which sequences it has, and what mixes them."""
    times = [axis for axis, kind in graph.spec.axes.items() if kind == "time"]
    if len(times) > 1 and (graph.step_axis or "target" in graph.inputs):
        form = "encoder-decoder"
    elif graph.step_axis:
        form = "decoder"
    else:
        form = "encoder"
    parts = (visit.part for visit in visits(graph.root) if isinstance(visit.part, Part))
    words = {word for part in parts if (word := _word(part))}
    return f"{form}: {', '.join(sorted(words)) or 'pointwise'}"


def _word(part: Part) -> str:
    """Return what a block brings to a system; nothing where that is not worth a mention."""
    if part.block.mixes is not None:
        return part.block.mixes
    mixing = any(behavior != "pointwise" for behavior in part.signature.behavior.values())
    return part.block.name.replace("_", " ") if mixing else ""


def page() -> str:
    """Return the text of the catalogue."""
    all_ = systems()
    lines = [HEAD, f"{len(all_)} systems from {len(STANDARD)} blocks.\n"]
    titles = {"models": "Models", "variants": "Variants"}
    for folder, title in titles.items():
        lines += [
            f"## {title}\n",
            "| system | form | parameters | lines | what it is, and its source |",
            "|---|---|---|---|---|",
            *(_row(system) for system in all_ if system.folder == folder),
            "",
        ]
    lines += ["## Blocks\n", "| block | what it computes | source |", "|---|---|---|"]
    lines += [_block_row(block) for block in STANDARD]
    lines += ["\n## Pictures\n"]
    for system in all_:
        if system.drawn:
            picture = f'<img src="{PICTURES}/{system.name}.svg" alt="{system.name}" width="420">'
            lines.append(f"### {system.name}\n\n{picture}\n")
    return "\n".join(lines)


def _row(system: System) -> str:
    name = f"[{system.name}](#{system.name})" if system.drawn else system.name
    count = f"{system.lines} on {system.parent}" if system.parent else f"{system.lines}"
    cells = (name, form_of(system.graph), f"{system.graph.parameters():,}", count, system.graph.doc)
    return _cells(*cells)


def _block_row(block: BlockType) -> str:
    return _cells(f"`{block.key}`", block.doc, block.source)


def _cells(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def picture(system: System) -> str:
    """Return the picture of a system as SVG, its digest before it.

    Raises:
        InputError: there is no `dot` to draw with.
    """
    with tempfile.TemporaryDirectory() as folder:
        drawn = write_picture(diagram(system.graph), Path(folder) / "drawn.svg")
        text = drawn.read_text(encoding="utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r"<!--.*?-->\n?|<title>.*?</title>\n?", "", text, flags=re.DOTALL)
    text = text.replace(f' font-family="{FONT}"', "")
    text = text.replace("<svg", f'<svg font-family="{FONT}"', 1)
    text = re.sub(r"<[^>]*>", lambda tag: _NUMBER.sub(_rounded, tag[0]), text)
    return f"<!-- {system.digest()} -->\n{text}"


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}".removesuffix(".0")


def write(docs: Path) -> None:
    """Write the page and its pictures; a picture that is up to date is left, a stale one removed.

    Args:
        docs: the folder of documents.

    Raises:
        InputError: there is no `dot` to draw with, or a file cannot be written.
    """
    folder = docs / PICTURES
    drawn = {system.name: system for system in systems() if system.drawn}
    for path in folder.glob("*.svg"):
        if path.stem not in drawn:
            path.unlink()
    for name, system in drawn.items():
        path = folder / f"{name}.svg"
        if digest_of(path) != system.digest():
            write_beside(path, picture(system).encode(), "picture")
    write_beside(docs / PAGE, page().encode(), "catalogue")


def digest_of(path: Path) -> str | None:
    """Return of what a picture was drawn; None if there is none."""
    if not path.is_file():
        return None
    found = re.match(r"<!-- (\w+) -->", path.read_text(encoding="utf-8"))
    return found[1] if found else None


if __name__ == "__main__":
    write(Path(sys.argv[1]))
