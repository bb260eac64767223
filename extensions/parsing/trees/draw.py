"""Drawing of trees with graphviz, with the words in order at the bottom."""

from __future__ import annotations

from pathlib import Path

import graphviz

from ....plugin import write_picture
from ....specs.json_tree import cells
from .trees import Leaf, Tree, unescaped

_LABEL, _TAG, _LINE = "#225588", "#777777", "#999999"
_SIZE = 12
"""Size of the font, in points."""
_BROAD = frozenset("MWmw@%")
"""Letters that are much broader than others."""
_LEVEL, _GAP = 30.0, 14.0
"""Distance of two levels, and of two words, in points."""


def draw_tree(tree: Tree, out: Path) -> Path:
    """Draw a tree into a file.

    Args:
        tree: tree to draw.
        out: output file with suffix .svg, .png, .pdf or .dot.

    Raises:
        InputError: the suffix is unknown, `dot` is missing, or the file cannot be written.
    """
    return write_picture(picture(tree), out)


def picture(tree: Tree) -> graphviz.Digraph:
    """Return the drawing of a tree as a graph with fixed positions.

    Constituents of one depth are on one line, tags on a line of their own above the words, and a
    constituent is centered over its first and last child.  No lines cross.
    """
    graph = graphviz.Digraph(
        engine="neato",
        graph_attr={"splines": "line"},
        node_attr={"shape": "plain", "fontname": "Helvetica", "fontsize": str(_SIZE)},
        edge_attr={"arrowhead": "none", "color": _LINE},
    )
    bottom = -_LEVEL * (_depth(tree) + 1)
    edge = 0.0

    def put(name: str, text: str, x: float, y: float, **look: str) -> None:
        graph.node(name, graphviz.escape(text), pos=f"{x:.1f},{y:.1f}", **look)

    def add(part: Tree | Leaf, name: str, depth: int, least: float) -> float:
        """Add a part, at least `least` points wide; return its center."""
        nonlocal edge
        if isinstance(part, Leaf):
            word = unescaped(part.word)
            width = max(_width(word), _width(part.tag), least) + _GAP
            x, edge = edge + width / 2, edge + width
            put(name, part.tag, x, bottom, fontcolor=_TAG)
            put(f"{name}w", word, x, bottom - 0.7 * _LEVEL, fontname="Helvetica-Bold")
            graph.edge(name, f"{name}w", style="dotted")
            return x
        share = max(_width(part.label), least) / len(part.children)
        centers = [
            add(child, f"{name}_{index}", depth + 1, share)
            for index, child in enumerate(part.children)
        ]
        x = (centers[0] + centers[-1]) / 2
        put(name, part.label, x, -_LEVEL * depth, fontcolor=_LABEL)
        below = -_LEVEL * (depth + 1)
        for index, child in enumerate(part.children):
            target = f"{name}_{index}"
            if isinstance(child, Leaf) and below > bottom:  # down in its column crosses no line
                put(f"{target}c", "", centers[index], below, shape="point", width="0")
                graph.edge(name, f"{target}c", headclip="false")
                graph.edge(f"{target}c", target, tailclip="false")
            else:
                graph.edge(name, target)
        return x

    add(tree, "t", 0, 0.0)
    return graph


def _depth(tree: Tree) -> int:
    inner = (_depth(child) for child in tree.children if isinstance(child, Tree))
    return 1 + max(inner, default=-1)


def _width(text: str) -> float:
    """Return about how wide a text is in points, in the widest of the usual bold fonts."""
    broad = sum(
        0.4 if letter in _BROAD else 0.17 for letter in text if letter in _BROAD or letter.isupper()
    )
    return _SIZE * (0.62 * cells(text) + broad)
