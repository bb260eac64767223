"""Charts: conversion between trees and labeled spans.

Constituents over the same words form one span, labeled with the chain of their labels.  A
tree of any arity corresponds to binary trees whose unlabeled spans are removed: trees need
no binarization, and every labeling of the spans of a binary tree gives a tree.  The outer
TOP is omitted.  As vocabulary symbols, a tree is written depth first:

    (S→VP =VB (NP =DT =NN ) )     chains open, tags are leaves, closing brackets are bare

Source: Stern et al. 2017, sections 2 and 4.1; Gaddy et al. 2018, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .linearization import TOP
from .trees import Leaf, Tree

_JOIN, _ESCAPED = "→", "\\j"
_OPEN, _CLOSE, _LEAF = "(", ")", "="
Span = tuple[int, int]
"""First and last word, inclusive."""
Labelled = Mapping[Span, str]
"""Chain of labels of each labeled span."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Tags and labeled spans of a tree: the prediction target for its sentence."""

    tags: tuple[str, ...]
    """Tag of each word."""
    spans: Labelled
    binary: float
    """Log of the number of binary trees that reduce to this tree without unlabeled spans."""


def chain_of(labels: Iterable[str]) -> str:
    """Join labels, outermost first, into one chain.

    >>> chain_of(["S", "VP"])
    'S→VP'
    """
    return _JOIN.join(label.replace("\\", "\\\\").replace(_JOIN, _ESCAPED) for label in labels)


def labels_of(chain: str) -> list[str]:
    """Return the labels of a chain, outermost first."""
    return [
        "\\".join(part.replace(_ESCAPED, _JOIN) for part in label.split("\\\\"))
        for label in chain.split(_JOIN)
    ]


def collapsed(part: Tree) -> tuple[str, tuple[Tree | Leaf, ...]]:
    """Return the unary chain that starts at a constituent, and the children of its last one."""
    labels = [part.label]
    while len(part.children) == 1 and isinstance(part.children[0], Tree):
        part = part.children[0]
        labels.append(part.label)
    return chain_of(labels), part.children


def symbols(tree: Tree) -> list[str]:
    """Return the symbols of a tree whose label is TOP."""
    return [symbol for child in tree.children for symbol in _symbols(child)]


def _symbols(part: Tree | Leaf) -> Iterator[str]:
    if isinstance(part, Leaf):
        yield _LEAF + part.tag
        return
    chain, children = collapsed(part)
    yield _OPEN + chain
    for child in children:
        yield from _symbols(child)
    yield _CLOSE


def chart_of(written: Sequence[str]) -> Chart:
    """Parse the symbols of a tree into a chart.

    Raises:
        ValueError: the symbols do not form a tree.
    """
    tags: list[str] = []
    spans: dict[Span, str] = {}
    stack: list[list[int | str]] = [["", 0, 0]]
    """Chain, first word and number of parts of each open bracket; the root has no chain."""
    binary = 0.0
    for symbol in written:
        if symbol[:1] == _OPEN:
            stack[-1][2] += 1  # type: ignore[operator]
            stack.append([symbol[1:], len(tags), 0])
        elif symbol[:1] == _LEAF:
            stack[-1][2] += 1  # type: ignore[operator]
            tags.append(symbol[1:])
        elif symbol == _CLOSE and len(stack) > 1:
            chain, first, parts = stack.pop()
            if not parts:
                raise ValueError("a bracket is empty")
            spans[int(first), len(tags) - 1] = str(chain)
            binary += _log_catalan(int(parts))
        else:
            msg = f"'{symbol}' is out of place"
            raise ValueError(msg)
    if len(stack) > 1 or not tags:
        raise ValueError("a bracket is never closed, or there are no words")
    return Chart(tuple(tags), spans, binary + _log_catalan(int(stack[0][2])))


def binary_trees(tree: Tree) -> float:
    """Return the log of the number of binary trees that reduce to a tree (see `Chart`)."""
    return chart_of(symbols(tree)).binary


def _log_catalan(parts: int) -> float:
    """Return the log of the number of binary trees over `parts` leaves."""
    n = parts - 1
    return math.lgamma(2 * n + 1) - math.lgamma(n + 1) - math.lgamma(n + 2)


def tree_of(spans: Labelled, leaves: Sequence[Leaf]) -> Tree:
    """Return the tree of labeled spans over the leaves.

    Args:
        spans: labeled spans; they must not cross.
        leaves: leaves of the sentence, at least one.
    """
    stack: list[tuple[int, str, list[Tree | Leaf]]] = [(len(leaves) - 1, "", [])]
    """Last word, chain and children of each open constituent."""
    openings: dict[int, list[tuple[int, str]]] = {}
    for (first, last), chain in spans.items():
        openings.setdefault(first, []).append((last, chain))
    for index, leaf in enumerate(leaves):
        for last, chain in sorted(openings.get(index, ()), key=lambda opening: -opening[0]):
            stack.append((last, chain, []))
        stack[-1][2].append(leaf)
        while len(stack) > 1 and stack[-1][0] == index:
            _, chain, children = stack.pop()
            for label in reversed(labels_of(chain)):
                children = [Tree(label, tuple(children))]
            stack[-1][2].extend(children)
    return Tree(TOP, tuple(stack[0][2]))


@dataclass(frozen=True, slots=True)
class Labels:
    """Chains of labels and tags of a symbol vocabulary."""

    chains: tuple[str, ...]
    tags: tuple[str, ...]
    chain_number: Mapping[str, int]
    """Index of each chain in `chains`."""
    tag_number: Mapping[str, int]
    """Index of each tag in `tags`."""

    @staticmethod
    def among(vocabulary: Iterable[str]) -> Labels:
        """Return the labels of a vocabulary, in its order."""
        texts = list(vocabulary)
        chains = tuple(symbol[1:] for symbol in texts if symbol[:1] == _OPEN)
        tags = tuple(symbol[1:] for symbol in texts if symbol[:1] == _LEAF)
        numbers = [{label: index for index, label in enumerate(side)} for side in (chains, tags)]
        return Labels(chains, tags, *numbers)

    def know(self, chart: Chart) -> bool:
        """Return whether every label and tag of a chart is in the vocabulary."""
        return self.chain_number.keys() >= {*chart.spans.values()} and self.tag_number.keys() >= {
            *chart.tags
        }
