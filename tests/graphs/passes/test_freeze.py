"""The weights that a run freezes, and those that it trains."""

from __future__ import annotations

import pytest
from weft.graphs.passes.freeze import frozen_weights, trained_weights
from weft.runtime.codegen.build import build
from weft.runtime.spec.check import graph_of
from weft.specs.findings import InputError
from weft.specs.load import load

SMALL = {"d_model": 16, "heads": 2, "d_ff": 24, "layers": 1}


def test_a_tied_weight_trains_under_all_of_its_paths() -> None:
    """The three matrices of the paper's model are one weight; naming one path is enough."""
    spec = load("transformer-base", {"vocab": 20, **SMALL})
    graph = graph_of(spec)
    model = build(graph)
    every = {name: id(one) for name, one in model.named_parameters(remove_duplicate=False)}
    tied = {name for name, one in every.items() if one == every["head.weight"]}
    assert len(tied) == 3

    frozen = frozen_weights(graph, ["encoder", "*embedding*", "head"], ["head.weight"])

    assert not frozen & tied
    assert any(name.startswith("encoder.") for name in frozen)
    with pytest.raises(InputError, match="selects no frozen weight"):
        frozen_weights(graph, ["encoder"], ["head.weight"])


def test_what_trains_is_the_rest_without_tied_weights_and_teachers() -> None:
    """The student of a distillation trains, but no weight that is tied to a frozen one."""
    graph = graph_of(load("distillation"))
    student = {name for name in graph.root.weights() if name.startswith("model.")}
    embeddings = {name for group in graph.ties for name in group if name.startswith("model.")}
    assert len(embeddings) == 3

    assert trained_weights(graph, []) == student
    assert trained_weights(graph, ["model.head"]) == {
        name for name in student - embeddings if not name.startswith("model.head.")
    }
    assert not trained_weights(graph, ["model"])
    assert trained_weights(graph, ["model"], ["model.head.weight"]) == embeddings
