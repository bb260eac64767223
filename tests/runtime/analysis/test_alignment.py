"""Alignment: pairs of a batch are independent, and models without alignment are rejected."""

from __future__ import annotations

from pathlib import Path

import pytest
import weft
from weft.runtime import api
from weft.runtime.analysis.alignment import reading_source
from weft.runtime.spec.check import graph_of
from weft.specs.findings import InputError

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def model(toy_checkpoint: Path) -> api.Model:
    """Return a barely trained model."""
    return api.open_model(toy_checkpoint)


def test_pairs_are_independent_of_their_neighbours(model: api.Model) -> None:
    """Of any length, more than fit one batch, with an empty source and an empty target."""
    sources = ["sun moon", "", "river stone bird wind leaf", "tree"] * 10
    targets = ["moon sun", "tree", "leaf", ""] * 10

    together = model.align(sources, targets)

    assert together == [
        model.align([one], [other])[0] for one, other in zip(sources, targets, strict=True)
    ]
    for one, source in zip(together, sources, strict=True):
        assert [number for _, number in one.pairs] == list(range(len(one.target) if source else 0))
        assert all(0 <= place < len(one.source) for place, _ in one.pairs)


def test_without_targets_the_translations_are_aligned(model: api.Model) -> None:
    """For each piece of the model's translation."""
    lines = ["sun moon", "river stone"]

    assert model.align(lines) == model.align(lines, model.translate(lines))
    with pytest.raises(InputError, match="1 sources for 2 targets"):
        model.align(["sun"], ["moon", "tree"])


def test_a_model_that_reads_no_source_by_attention_is_refused() -> None:
    """The error names its spec."""
    spec = weft.load("bytenet", vocab=11, d_model=8, sets=1)
    graph = graph_of(spec)

    with pytest.raises(InputError, match="alignment needs an attention") as caught:
        reading_source(graph, weft.build(spec))

    assert "bytenet" in caught.value.location


def test_recurrent_models_align_too() -> None:
    """Their attention has one head."""
    spec = weft.load("gru-attention", vocab=11, d_model=8)

    assert reading_source(graph_of(spec), weft.build(spec))
