"""Linearization: conversion of trees to symbols and back, and repair of malformed symbols."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.extensions.parsing.decode.tree_repair import Repairs, repair
from weft.extensions.parsing.trees.linearization import (
    LINEARIZATIONS,
    Linearization,
    SymbolError,
)
from weft.extensions.parsing.trees.trees import Leaf, Tree, read_trees

pytestmark = pytest.mark.integration

(JOHN,) = read_trees("(TOP (S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .)))", "x")
WRITTEN = {
    "vinyals": "(S (NP XX )NP (VP XX (NP XX XX )NP )VP XX )S",
    "tensor2tensor": "S NP NNP /NP VP VBZ NP DT NN /NP /VP . /S",
    "top_down": "(S (NP John ) (VP has (NP a dog ) ) . )",
}
"""The linearizations of the sentence, as printed in the papers."""
EVERY = pytest.mark.parametrize("form", LINEARIZATIONS.values(), ids=LINEARIZATIONS.keys())

names = st.sampled_from(["S", "NP", "VP", "TOP", "X", "/X", "\\X"])
leaves = st.builds(
    Leaf, tag=st.sampled_from(["NN", "NP", "/X", "\\X", ".", "X"]), word=st.sampled_from("abXS")
)
trees = st.recursive(
    st.builds(lambda label, below: Tree(label, tuple(below)), names, st.lists(leaves, min_size=1)),
    lambda inner: st.builds(
        lambda label, below: Tree(label, tuple(below)),
        names,
        st.lists(inner | leaves, min_size=1, max_size=4),
    ),
    max_leaves=12,
)
PLAIN = {"S", "NP", "VP", "TOP", "X"}
"""Labels that do not begin like a closing."""


@pytest.mark.parametrize("name", WRITTEN)
def test_the_sentence_of_the_papers(name: str) -> None:
    """Each form equals the printed one."""
    assert " ".join(LINEARIZATIONS[name].write(JOHN)) == WRITTEN[name]


@EVERY
@given(tree=trees)
def test_reading_undoes_writing(form: Linearization, tree: Tree) -> None:
    """Every form round-trips for any tree under TOP, given its leaves."""
    rooted = tree if tree.label == "TOP" else Tree("TOP", (tree,))

    assert form.read(form.write(rooted), list(rooted.leaves())) == rooted


@EVERY
@given(tree=trees)
def test_repair_does_not_change_a_tree(form: Linearization, tree: Tree) -> None:
    """The symbols of a tree are read without any repair."""
    rooted = tree if tree.label == "TOP" else Tree("TOP", (tree,))

    assert repair(form, form.write(rooted), list(rooted.leaves())) == (rooted, Repairs())


JUNK = st.lists(
    st.sampled_from(["(S", ")S", "(NP", ")NP", "XX", "S", "/S", "NP", "/NP", ")", "(", "a", ""]),
    max_size=25,
)


@EVERY
@given(symbols=JUNK, sentence=st.lists(leaves, min_size=1, max_size=8))
def test_repair_makes_a_tree_of_anything(
    form: Linearization, symbols: Sequence[str], sentence: list[Leaf]
) -> None:
    """The result has exactly the words of the sentence; repairs are counted if reading fails."""
    tree, done = repair(form, symbols, sentence)

    assert list(tree.leaves()) == sentence
    assert all(part.children for part in tree.constituents())
    try:
        assert form.read(symbols, sentence) == tree
        assert not done.any
    except SymbolError:
        assert done.any


@pytest.mark.parametrize(
    ("symbols", "tree", "counts"),
    [
        ("(S (NP XX )NP (VP XX", "(TOP (S (NP (A a)) (VP (B b))))", {"closed_added": 2}),
        ("(S XX XX XX )S", "(TOP (S (A a) (B b)))", {"words_dropped": 1}),
        ("(S XX )S", "(TOP (S (A a)) (B b))", {"words_added": 1}),
        ("(S (NP XX )S XX", "(TOP (S (NP (A a))) (B b))", {"closed_added": 1}),
        (")NP (S XX XX )S )S", "(TOP (S (A a) (B b)))", {"closed_dropped": 2}),
        ("(S (NP )NP XX XX ( )S", "(TOP (S (A a) (B b)))", {"opened_dropped": 1, "unknown": 1}),
        ("", "(TOP (A a) (B b))", {"words_added": 2}),
        ("(S XX XX (NP", "(TOP (S (A a) (B b)))", {"opened_dropped": 1, "closed_added": 1}),
    ],
)
def test_repairs_by_hand(symbols: str, tree: str, counts: dict[str, int]) -> None:
    """The result and the counts for each kind of damage."""
    found, done = repair(
        LINEARIZATIONS["vinyals"], symbols.split(), [Leaf("A", "a"), Leaf("B", "b")]
    )

    assert str(found) == tree
    assert done == Repairs(**counts)


@pytest.mark.parametrize(
    ("symbols", "problem"),
    [
        ("(S XX )NP", r"symbol 2, '\)NP' closes 'S'"),
        ("(S XX XX XX )S", "there are more leaf symbols than words"),
        ("(S XX )S", "there are fewer leaf symbols than words"),
        ("(S XX XX", "'S' is never closed"),
        ("(S XX XX )S )S", "closes a bracket that was not opened"),
        ("(S (NP )NP XX XX )S", "'NP', which contains no word"),
        ("(S what XX )S", "'what', is not a symbol of vinyals"),
    ],
)
def test_symbols_that_form_no_tree_raise_an_error(symbols: str, problem: str) -> None:
    """The error names the symbol."""
    with pytest.raises(SymbolError, match=problem):
        LINEARIZATIONS["vinyals"].read(symbols.split(), [Leaf("A", "a"), Leaf("B", "b")])
