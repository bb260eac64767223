"""Tetratagging: conversion between trees and tags of their words.

In an in-order traversal, a binary tree over n words has n leaves and n - 1 inner nodes, one
between each two adjacent words.  Whether each is a left or a right child determines the
tree, so word i gets the tag of its leaf and the tag of the node after it.  As symbols:

    =NN l:NP L:S        part of speech, leaf, node; the last two with the label chain, if any

Constituents with more than two children are binarized to the right, without labels.

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
"""Prefixes of the symbols of a left and of a right child."""
TAGS = ("tags", "leaves", "nodes")
"""Names of the tags of a word, in the order of its symbols."""


@dataclass(frozen=True, slots=True)
class TagSets:
    """Symbols of a vocabulary by kind, in vocabulary order."""

    pos: tuple[str, ...]
    leaves: tuple[str, ...]
    nodes: tuple[str, ...]

    @staticmethod
    def among(vocabulary: Iterable[str]) -> TagSets:
        """Return the tags of a vocabulary."""
        symbols = list(vocabulary)
        marks = ((POS,), LEAVES, NODES)
        return TagSets(
            *(tuple(symbol for symbol in symbols if symbol.startswith(mark)) for mark in marks)
        )


def tags_of(tree: Tree) -> list[str]:
    """Return the symbols of a tree whose label is TOP: three per word, two for the last word."""
    chain, parts = "", tree.children
    if len(parts) == 1 and isinstance(parts[0], Tree):
        chain, parts = collapsed(parts[0])
    return list(_walk(chain, parts, side=0))


def _walk(chain: str, parts: Sequence[Tree | Leaf], side: int) -> Iterator[str]:
    """Yield the symbols of a constituent, in order."""
    if len(parts) == 1 and isinstance(parts[0], Leaf):
        yield POS + parts[0].tag
        yield LEAVES[side] + chain
        return
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        inner = ("", (part,)) if isinstance(part, Leaf) else collapsed(part)
        yield from _walk(*inner, side=int(last))
        if not last:
            yield NODES[side if index == 0 else 1] + (chain if index == 0 else "")


def spans_of(leaves: Sequence[str], nodes: Sequence[str]) -> dict[Span, str]:
    """Return the labeled spans of a tree.

    Args:
        leaves: symbol of each word's leaf.
        nodes: symbol of the node after each word except the last.

    Raises:
        ValueError: the symbols do not form a tree.
    """
    spans: dict[Span, str] = {}
    stack: list[tuple[int, list[tuple[int, str]]]] = []
    """First word of each tree under construction, and its nodes that end where the tree ends."""
    for index, leaf in enumerate(leaves):
        if leaf.startswith(LEAVES[0]):
            stack.append((index, []))
        elif not stack:
            raise ValueError("the first word is a right child")
        first, ending = stack[-1]
        for begin, chain in [*ending, (index, leaf[2:])]:
            if chain:
                spans[begin, index] = chain
        if index == len(leaves) - 1:
            break
        side, chain = NODES.index(nodes[index][:2]), nodes[index][2:]
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
    """Return the highest-scoring sides that form a tree: 0 left, 1 right, leaves and nodes in turn.

    Dynamic program over the number of trees under construction, which determines the valid
    continuations: a left leaf starts a new tree, a right node joins two.

    Args:
        leaf_N2: score of each word's leaf as a left and as a right child.
        node_N2: the same for the node after each word; the last row is ignored.
    """
    n = len(leaf_N2)
    worth_D = np.full(n + 2, -np.inf)
    worth_D[0] = 0.0
    turns: list[NDArray[np.bool_]] = []
    for index in range(n):
        begun_D = np.concatenate([[-np.inf], worth_D[:-1]]) + leaf_N2[index, 0]
        filled_D = worth_D + leaf_N2[index, 1]
        filled_D[0] = -np.inf
        turns.append(filled_D > begun_D)
        worth_D = np.maximum(begun_D, filled_D)
        if index < n - 1:
            kept_D = worth_D + node_N2[index, 0]
            joined_D = np.concatenate([worth_D[1:], [-np.inf]]) + node_N2[index, 1]
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
