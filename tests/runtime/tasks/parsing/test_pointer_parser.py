"""Parser with a pointer that copies words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from weft.runtime import api
from weft.runtime.metrics.parsing import measure
from weft.runtime.model.opening import open_model
from weft.runtime.train.run import Run

from ...toy_treebank import bank


@pytest.mark.slow
@pytest.mark.parametrize("constrained", [True, False])
def test_it_trains_and_parses(
    constrained: bool, tree_run: Callable[..., Run], tmp_path: Path
) -> None:
    """After a few updates, its trees are over the words; constrained search needs no repair."""
    run = tree_run(
        spec="parsing-pointer",
        updates=20,
        parsing={"linearization": "top_down", "constrained": constrained},
        evaluate={"every": 20, "best": "nll", "bleu": False},
    )
    result = api.train(run, out=tmp_path / "run")
    assert result.checkpoint is not None
    gold = bank(12, 2)

    found = measure(open_model(result.checkpoint).parser, gold)

    assert found.scores.all.errors == 0
    for parse, tree in zip(found.parses, gold, strict=True):
        assert parse is not None
        assert list(parse.tree.leaves()) == list(tree.leaves())
    if constrained:
        assert (found.malformed, found.unfinished) == (0, 0)
