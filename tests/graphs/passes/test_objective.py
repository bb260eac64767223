"""What the graph of an objective tells about its models: expected from the shipped JSON."""

from __future__ import annotations

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.graph import Graph
from weft.graphs.passes.objective import (
    counted_inputs,
    deployed_graph,
    feeds_of,
    trained_models,
)
from weft.specs.load import load
from weft.specs.reader import shipped_names


def objective(name: str) -> Graph:
    """Return the checked graph of a shipped objective."""
    return check(load(str(shipped_names("objectives")[name])).form, registry(), {})


def test_the_deployed_model_is_one_of_those_that_train() -> None:
    """ELECTRA's generator trains too; a teacher is frozen; a model alone is its own."""
    electra, distilled = objective("replaced-token-detection"), objective("distillation")
    alone = check(load("gpt2").form, registry(), {})

    assert set(trained_models(electra)) == {"generator", "model"}
    assert deployed_graph(electra).name == "electra"
    assert set(trained_models(distilled)) == {"model"}
    assert deployed_graph(alone) is alone


@pytest.mark.parametrize(
    ("name", "feeds"),
    [
        ("translation", {"source": "source", "target": "target"}),
        ("mask-predict", {"source": "source", "target": "target"}),
        ("replaced-token-detection", {"tokens": "text"}),
        ("masked-language-model", {"tokens": "text"}),
        ("image-classification", {"image": "image"}),
    ],
)
def test_inputs_of_the_deployed_model_are_fed_from_those_of_the_objective(
    name: str, feeds: dict[str, str]
) -> None:
    """A shift and noise keep ids; masks and token types are not filled with ids of a text."""
    assert feeds_of(objective(name)) == feeds


def test_the_data_count_positions_of_masks_and_of_shifted_ids() -> None:
    """Masked ids are as long as the others, but their mask is what tells."""
    assert counted_inputs(objective("translation")) == {
        "model": {"source_mask": ("source", False), "target": ("target", True)}
    }
    assert counted_inputs(objective("mask-predict")) == {
        "model": {"source_mask": ("source", False), "target_mask": ("target", False)}
    }
    electra = counted_inputs(objective("replaced-token-detection"))
    assert electra == {name: {"mask": ("text", False)} for name in ("generator", "model")}


def test_models_that_run_twice_are_not_counted() -> None:
    """R-Drop runs the model twice with other dropout masks."""
    assert counted_inputs(objective("r-drop-translation")) == {}
