"""Evaluation of parsers: EVALB on gold tags, own tags, and counts of repairs."""

from __future__ import annotations

import pytest
from weft.extensions.parsing.decode.parse import Parse
from weft.extensions.parsing.decode.tree_repair import Repairs
from weft.extensions.parsing.metrics.metric import measured
from weft.extensions.parsing.trees.trees import Leaf, Tree


def test_measures_by_hand() -> None:
    """Gold tags are on the leaves, the parser's own are counted separately; repairs are summed."""
    gold = Tree("TOP", (Tree("S", (Leaf("NN", "a"), Leaf("VB", "b"))),))
    flat = Tree("TOP", (Tree("NP", (Leaf("NN", "a"), Leaf("VB", "b"))),))
    parses = [
        Parse(gold, ("NN", "NN")),
        Parse(flat, ("NN", "VB"), finished=False, repairs=Repairs(words_added=2)),
        None,
    ]

    found = measured(parses, [gold, gold, gold])

    total = found.scores.all
    assert (total.matched, total.gold, total.test, total.skipped) == (1, 2, 2, 1)
    assert found.f1 == pytest.approx(50.0)
    assert (found.malformed, found.unfinished, found.repairs.total) == (1, 1, 2)
    assert found.as_json()["own_tagging_accuracy"] == pytest.approx(75.0)
