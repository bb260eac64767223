"""Tetratagging: conversion of trees to tags and back, and the best tags that form a tree."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from weft.extensions.parsing.trees.charts import tree_of
from weft.extensions.parsing.trees.tetra import (
    LEAVES,
    NODES,
    TagSets,
    best_sides,
    spans_of,
    tags_of,
)
from weft.extensions.parsing.trees.trees import Tree, read_trees

from .test_charts import JOHN, trees


def parted(symbols: list[str]) -> tuple[list[str], list[str]]:
    """Return the symbols of leaves and those of nodes."""
    return symbols[1::3], symbols[2::3]


def test_a_sentence_by_hand() -> None:
    """As in figure 1 of the paper: in-order traversal, left and right children."""
    (tree,) = read_trees(
        "(TOP (S (NP (PRP She)) (VP (VBZ enjoys) (S (VP (VBG playing) (NP (NN tennis))))) (. .)))",
        "x",
    )

    assert " ".join(tags_of(tree)) == (
        "=PRP l:NP L:S =VBZ l: L:VP =VBG l: R:S→VP =NN r:NP R: =. r:"
    )


@pytest.mark.integration
@given(tree=trees)
def test_tags_tell_the_tree(tree: Tree) -> None:
    """Tags and leaves determine any tree under TOP, except chains of one empty label."""
    spans = spans_of(*parted(tags_of(tree)))

    if not any(part.label == "" for part in tree.constituents()):
        assert tree_of(spans, list(tree.leaves())) == tree


def test_a_vocabulary_is_split_into_three_sets_of_symbols() -> None:
    """Each symbol of a tree is in exactly one of the three sets."""
    symbols = tags_of(JOHN)

    sets = TagSets.among(["<pad>", *sorted(set(symbols))])

    assert {*sets.pos, *sets.leaves, *sets.nodes} == set(symbols)
    assert set(sets.leaves) == set(symbols[1::3])


def sides_of(sides: list[int]) -> tuple[list[str], list[str]]:
    """Return unlabeled symbols for alternating sides of leaves and nodes."""
    return [LEAVES[side] for side in sides[::2]], [NODES[side] for side in sides[1::2]]


@pytest.mark.parametrize("words", range(1, 7))
def test_the_best_sides_are_the_best_of_all_that_make_a_tree(words: int) -> None:
    """Compare with all sequences of sides; the number of valid ones is that of binary trees."""
    draw = np.random.default_rng(words)
    leaf, node = draw.normal(size=(words, 2)), draw.normal(size=(words, 2))
    both = np.concatenate([leaf[:, None], node[:, None]], 1).reshape(-1, 2)[: 2 * words - 1]
    valid = []
    for sides in itertools.product((0, 1), repeat=2 * words - 1):
        try:
            spans_of(*sides_of(list(sides)))
        except ValueError:
            continue
        valid.append(list(sides))

    assert len(valid) == [1, 1, 2, 5, 14, 42][words - 1]
    best = max(valid, key=lambda sides: sum(both[place, side] for place, side in enumerate(sides)))
    assert best_sides(leaf, node) == best
