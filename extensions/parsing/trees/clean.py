"""Cleaning of annotated trees for training parsers, and treebank statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from .trees import OUTER, Leaf, Tree

TRACE = "-NONE-"
"""Tag of traces and other empty elements."""


def bare(label: str) -> str:
    """Return a constituent's label without function tags and indices.

    A label that begins with `-` or `=`, such as `-LRB-`, is unchanged.

    >>> bare("NP-SBJ-1"), bare("NP=2"), bare("-LRB-")
    ('NP', 'NP', '-LRB-')
    """
    return label if label[:1] in ("-", "=") else label.partition("-")[0].partition("=")[0]


def clean(tree: Tree) -> Tree | None:
    """Return a tree without traces, function tags and empty constituents.

    The outer label of the result is TOP, which is added if the tree has no outer label.

    Returns:
        The tree, or None if no word is left.
    """
    cleaned = _kept(rooted(tree).children)
    return Tree("TOP", cleaned) if cleaned else None


def rooted(tree: Tree) -> Tree:
    """Return a tree with an outer label; TOP is put around a tree without one."""
    return tree if tree.label in OUTER else Tree("TOP", (tree,))


def _kept(children: Iterable[Tree | Leaf]) -> tuple[Tree | Leaf, ...]:
    cleaned: list[Tree | Leaf] = []
    for child in children:
        if isinstance(child, Leaf):
            if child.tag != TRACE:
                cleaned.append(child)
        elif inner := _kept(child.children):
            cleaned.append(Tree(bare(child.label), inner))
    return tuple(cleaned)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of a treebank."""

    trees: int
    words: int
    longest: int
    """Words of the longest tree."""
    deepest: int
    """Nesting depth of constituents in the deepest tree."""
    labels: Counter[str]
    tags: Counter[str]
    unaries: int
    """Constituents, except outermost ones, whose only child is a constituent."""

    def render(self) -> str:
        """Return the statistics as text, most frequent labels and tags first."""

        def common(counts: Counter[str]) -> str:
            shown = ", ".join(f"{name} {count:,}" for name, count in counts.most_common(12))
            return f": {shown}" if shown else ""

        return (
            f"{self.trees:,} trees, {self.words:,} words, longest {self.longest}, "
            f"deepest {self.deepest}, {self.unaries:,} unary constituents\n"
            f"{len(self.labels)} labels{common(self.labels)}\n"
            f"{len(self.tags)} tags{common(self.tags)}"
        )


def statistics(trees: Iterable[Tree]) -> Statistics:
    """Compute statistics of trees; outer labels do not count as constituents."""
    labels: Counter[str] = Counter()
    tags: Counter[str] = Counter()
    count = longest = deepest = unaries = 0
    for tree in trees:
        leaves = list(tree.leaves())
        tags.update(leaf.tag for leaf in leaves)
        inside = [part for part in tree.constituents() if part.label not in OUTER]
        labels.update(part.label for part in inside)
        unaries += sum(
            len(part.children) == 1 and isinstance(part.children[0], Tree) for part in inside
        )
        count, longest = count + 1, max(longest, len(leaves))
        deepest = max(deepest, _depth(tree))
    return Statistics(count, tags.total(), longest, deepest, labels, tags, unaries)


def _depth(tree: Tree) -> int:
    below = max((_depth(c) for c in tree.children if isinstance(c, Tree)), default=0)
    return below + (tree.label not in OUTER)
