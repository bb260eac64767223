"""Freezing: which weights train."""

from __future__ import annotations

import pytest
from weft.runtime.codegen.build import build
from weft.runtime.spec.check import graph_of
from weft.runtime.train.transforms.freezing import frozen_weights
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

    frozen = frozen_weights(model, graph, ["encoder", "*embedding*", "head"], ["head.weight"])

    assert not frozen & tied
    assert any(name.startswith("encoder.") for name in frozen)
    with pytest.raises(InputError, match="names no frozen weight"):
        frozen_weights(model, graph, ["encoder"], ["head.weight"])
