"""Drawing of trees with graphviz, with the words in order at the bottom."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import graphviz

from ....graphs.draw.render import write_picture
from .trees import Leaf, Tree, plain

_LABEL, _TAG, _LINE = "#225588", "#777777", "#999999"


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
    """Return the drawing of a tree as a graph."""
    graph = graphviz.Digraph(
        graph_attr={"ordering": "out", "nodesep": "0.15", "ranksep": "0.25"},
        node_attr={"shape": "plain", "fontname": "Helvetica", "fontsize": "12"},
        edge_attr={"arrowhead": "none", "color": _LINE},
    )
    words: list[str] = []

    def add(part: Tree | Leaf, name: str) -> None:
        if isinstance(part, Leaf):
            graph.node(name, graphviz.escape(part.tag), fontcolor=_TAG)
            word = f"{name}w"
            graph.node(word, graphviz.escape(plain(part.word)), fontname="Helvetica-Bold")
            graph.edge(name, word, style="dotted")
            words.append(word)
            return
        graph.node(name, graphviz.escape(part.label), fontcolor=_LABEL)
        for place, child in enumerate(part.children):
            add(child, f"{name}_{place}")
            graph.edge(name, f"{name}_{place}")

    add(tree, "t")
    with graph.subgraph() as line:
        line.attr(rank="same")
        for word in words:
            line.node(word)
    for left, right in pairwise(words):
        graph.edge(left, right, style="invis")
    return graph
