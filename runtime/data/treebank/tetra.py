"""Tetra: a tree as tags of its words, and back.

A binary tree over n words has n leaves and n - 1 inner nodes, one between each two words
when it is walked in order.  Whether each is a left or a right child is enough to know the
tree: so word i gets the tag of its leaf and that of the node after it.  As symbols:

    =NN l:NP L:S        tag, leaf, node: with the chain of labels, or nothing

Constituents of more parts are binary ones that branch to the right, without labels.

Axes: N words, D open nodes at most.

Source: Kitaev & Klein 2020, sections 2 and 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .charts import Span, collapsed
from .trees import Leaf, Tree

POS = "="
LEAVES, NODES = ("l:", "r:"), ("L:", "R:")
"""What a left child's symbol begins with, and a right one's."""


@dataclass(frozen=True, slots=True)
class TagSets:
    """The symbols of a vocabulary by what they tell, in its order."""

    pos: tuple[str, ...]
    leaves: tuple[str, ...]
    nodes: tuple[str, ...]

    @staticmethod
    def among(vocabulary: Iterable[str]) -> TagSets:
        """Return the tags of a vocabulary."""
        known = list(vocabulary)
        marks = ((POS,), LEAVES, NODES)
        return TagSets(*(tuple(one for one in known if one.startswith(mark)) for mark in marks))


def tags_of(tree: Tree) -> list[str]:
    """Return the symbols of a tree whose label is TOP, three a word but for the last: two."""
    chain, parts = "", tree.children
    if len(parts) == 1 and isinstance(parts[0], Tree):
        chain, parts = collapsed(parts[0])
    return list(_walk(chain, parts, side=0))


def _walk(chain: str, parts: Sequence[Tree | Leaf], side: int) -> Iterator[str]:
    """Yield the symbols of a constituent in order."""
    if len(parts) == 1 and isinstance(parts[0], Leaf):
        yield POS + parts[0].tag
        yield LEAVES[side] + chain
        return
    for place, part in enumerate(parts):
        last = place == len(parts) - 1
        inner = ("", (part,)) if isinstance(part, Leaf) else collapsed(part)
        yield from _walk(*inner, side=int(last))
        if not last:
            yield NODES[side if place == 0 else 1] + (chain if place == 0 else "")


def spans_of(leaves: Sequence[str], nodes: Sequence[str]) -> dict[Span, str]:
    """Return the labelled spans of a tree.

    Args:
        leaves: the symbol of each word's leaf.
        nodes: the symbol of the node after each word but the last.

    Raises:
        ValueError: they are not those of a tree.
    """
    spans: dict[Span, str] = {}
    stack: list[tuple[int, list[tuple[int, str]]]] = []
    """Of each tree under construction its first word, and its nodes that end where it ends."""
    for place, leaf in enumerate(leaves):
        if leaf.startswith(LEAVES[0]):
            stack.append((place, []))
        elif not stack:
            raise ValueError("the first word is a right child")
        first, ending = stack[-1]
        for begin, chain in [*ending, (place, leaf[2:])]:
            if chain:
                spans[begin, place] = chain
        if place == len(leaves) - 1:
            break
        side, chain = NODES.index(nodes[place][:2]), nodes[place][2:]
        if side:
            stack.pop()
            if not stack:
                raise ValueError("a right child has no parent")
            stack[-1][1].append((first, chain))
        else:
            stack[-1] = (first, [(first, chain)])
    if len(stack) != 1:
        raise ValueError("there is more than one tree")
    return spans


def best_sides(leaf_N2: NDArray[np.float64], node_N2: NDArray[np.float64]) -> list[int]:
    """Return the sides, 0 left and 1 right, of leaves and nodes in turn, that make a tree.

    Of all trees they are those of the greatest sum.  What may follow depends only on how
    many trees are under construction: a left leaf begins one more, a right node joins two.

    Args:
        leaf_N2: what each word's leaf is worth as left and as right child.
        node_N2: the same for the node after each word; that of the last counts for nothing.
    """
    n = len(leaf_N2)
    worth_D = np.full(n + 2, -np.inf)
    worth_D[0] = 0.0
    turns: list[NDArray[np.bool_]] = []
    for place in range(n):
        begun_D = np.concatenate([[-np.inf], worth_D[:-1]]) + leaf_N2[place, 0]
        filled_D = worth_D + leaf_N2[place, 1]
        filled_D[0] = -np.inf
        turns.append(filled_D > begun_D)
        worth_D = np.maximum(begun_D, filled_D)
        if place < n - 1:
            kept_D = worth_D + node_N2[place, 0]
            joined_D = np.concatenate([worth_D[1:], [-np.inf]]) + node_N2[place, 1]
            joined_D[0] = -np.inf
            turns.append(joined_D > kept_D)
            worth_D = np.maximum(kept_D, joined_D)
    sides, depth = [], 1
    for turn, right_D in reversed(list(enumerate(turns))):
        right = bool(right_D[depth])
        sides.append(int(right))
        if turn % 2 == 0:
            depth -= not right
        else:
            depth += right
    return sides[::-1]
