"""Models that an objective ties to other parts of it."""

from __future__ import annotations

import pytest
import torch
import weft
from weft.graphs.diff.weight_transfer import weight_transfer
from weft.graphs.ir.canonical import canonical, fingerprint
from weft.runtime.checkpoint.saving import weights_of, weights_of_deployed
from weft.runtime.spec.check import graph_of
from weft.specs.load import loaded

TIED = "replaced-token-detection"
"""Objective whose generator and model share one table, stored under the generator's path."""


def test_ties_between_models_are_in_the_canonical_form() -> None:
    """Otherwise a checkpoint of the objective would open as another function."""
    graph = graph_of(TIED)

    again = graph_of(loaded(canonical(graph)))

    assert again.ties == graph.ties
    assert again.weights().keys() == graph.weights().keys()
    untied = {key: value for key, value in canonical(graph).items() if key != "tie"}
    assert fingerprint(graph_of(loaded(untied))) != fingerprint(graph)


@pytest.mark.integration
def test_a_parameter_that_two_groups_name_is_stored_once() -> None:
    """The generator ties its table to its head, and the objective ties another table to it.

    Whichever of them the objective names first, all three are one tensor, and weights of one order
    fit the other.
    """
    form = canonical(graph_of(TIED))
    [tables] = form["tie"]
    turned = graph_of(loaded({**form, "tie": [tables[::-1]]}))

    [group] = turned.ties
    assert group == (
        "model.embedding.weight",
        "generator.embedding.weight",
        "generator.head.weight",
    )
    assert set(group) & turned.weights().keys() == {group[0]}
    both = weight_transfer(turned, graph_of(TIED)), weight_transfer(graph_of(TIED), turned)
    assert not any(one.new or one.lost or one.reshaped for one in both)
    module = weft.build(turned)
    assert len({module.get_parameter(path).data_ptr() for path in group}) == 1


@pytest.mark.integration
def test_a_deployed_model_has_the_weights_that_it_shares_with_other_parts() -> None:
    """Each weight is stored once, perhaps under a path outside the model."""
    module = weft.build(TIED)
    graph = graph_of(TIED)
    assert "model.embedding.weight" not in graph.weights()

    found = weights_of_deployed(graph, weights_of(module, graph))

    inside = module.get_submodule("model").state_dict()
    [model] = [inner for node, inner in graph.models() if node.name == "model"]
    assert found.keys() == model.weights().keys()
    assert all(torch.equal(found[path], inside[path]) for path in found)
