"""Charts: conversion of trees to labeled spans and symbols, and back."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.extensions.parsing.trees.charts import (
    Labels,
    chain_of,
    chart_of,
    labels_of,
    symbols,
    tree_of,
)
from weft.extensions.parsing.trees.trees import Leaf, Tree, read_trees

pytestmark = pytest.mark.integration

(JOHN,) = read_trees(
    "(TOP (S (NP (NNP John)) (VP (VBZ has) (S (VP (TO to) (VP (VB go))))) (. .)))", "x"
)
leaves = st.builds(Leaf, tag=st.sampled_from(["NN", ")", "=", "(NP"]), word=st.sampled_from("ab"))
names = st.sampled_from(["S", "NP", "TOP", "→", "\\", "\\j", "", ")", "="])
inner = st.recursive(
    st.builds(lambda label, below: Tree(label, tuple(below)), names, st.lists(leaves, min_size=1)),
    lambda part: st.builds(
        lambda label, below: Tree(label, tuple(below)),
        names,
        st.lists(part | leaves, min_size=1, max_size=4),
    ),
    max_leaves=12,
)
trees = st.builds(
    lambda parts: Tree("TOP", tuple(parts)), st.lists(inner | leaves, min_size=1, max_size=3)
)


def test_a_sentence_by_hand() -> None:
    """Constituents over the same words form one chain."""
    written = symbols(JOHN)

    assert " ".join(written) == "(S (NP =NNP ) (VP =VBZ (S→VP =TO (VP =VB ) ) ) =. )"
    chart = chart_of(written)
    assert chart.tags == ("NNP", "VBZ", "TO", "VB", ".")
    assert chart.spans == {(0, 4): "S", (0, 0): "NP", (1, 3): "VP", (2, 3): "S→VP", (3, 3): "VP"}
    assert chart.binary == pytest.approx(
        math.log(2)
    )  # only S has three parts, with two binarizations


@given(tree=trees)
def test_written_values_are_read_back(tree: Tree) -> None:
    """Spans and tags determine any tree under TOP."""
    chart = chart_of(symbols(tree))

    given_ = list(tree.leaves())
    assert chart.tags == tuple(leaf.tag for leaf in given_)
    assert tree_of(chart.spans, given_) == tree


@given(labels=st.lists(st.text("→\\jS", max_size=4), min_size=1, max_size=4))
def test_chains_come_apart_as_they_were_joined(labels: list[str]) -> None:
    """Labels may contain any text, including the separator and its escape."""
    assert labels_of(chain_of(labels)) == labels


@given(tree=trees)
def test_labels_are_found_in_the_vocabulary(tree: Tree) -> None:
    """Labels are found among symbols, next to special tokens."""
    written, chart = symbols(tree), chart_of(symbols(tree))

    labels = Labels.among(["<pad>", *sorted(set(written))])

    assert set(labels.chains) == set(chart.spans.values())
    assert set(labels.tags) == set(chart.tags)
    assert [labels.chains[labels.chain_number[one]] for one in labels.chains] == [*labels.chains]


@pytest.mark.parametrize("written", ["", "(NP )", "(NP =NN", "=NN )", "NN", "<unk>"])
def test_symbols_that_form_no_tree_are_refused(written: str) -> None:
    """Symbols that do not form a tree raise an error."""
    with pytest.raises(ValueError, match=r"bracket|out of place"):
        chart_of(written.split())
