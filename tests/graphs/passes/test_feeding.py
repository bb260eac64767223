"""The graph that computes the inputs of a model from columns, for prediction."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.graph import Graph
from weft.graphs.passes.feeding import feeding_by_name, feeding_graph, unfed
from weft.graphs.passes.objective import deployed_graph, feeds_of, read_texts, source_among
from weft.specs.findings import InputError
from weft.specs.load import load

OBJECTIVES = {
    "translation": ({"source": "source", "target": "target"}, {"shift@1", "not_padding@1"}),
    "word-dropout-translation": (
        {"source": "source", "target": "target"},
        {"shift@1", "not_padding@1"},
    ),
    "masked-language-model": ({"text": "tokens"}, {"not_padding@1"}),
    "classification": ({"text": "tokens"}, {"not_padding@1"}),
    "replaced-token-detection": ({"text": "tokens"}, {"not_padding@1"}),
}
"""Name to the columns that are read, each with the input that it fills, and some of the blocks that
compute the inputs; noise and losses are not among them."""


def graph(name: str) -> Graph:
    """Return the graph of a shipped objective."""
    spec = load(name, kind="objectives")
    return check(spec.form, registry(), spec.overrides)


def blocks_of(feeding: Graph) -> set[str]:
    """Return the keys of the blocks of a graph."""
    return {node.part.block.key for node in feeding.root.nodes}  # type: ignore[union-attr]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_inputs_are_computed_from_columns_without_noise(name: str) -> None:
    """The outputs have the types of the inputs of the model; labels are not read."""
    columns, blocks = OBJECTIVES[name]
    objective = graph(name)
    model = deployed_graph(objective)

    feeding = feeding_graph(objective, model.inputs, registry())

    assert {port: str(type_) for port, type_ in feeding.outputs.items()} == {
        port: str(type_) for port, type_ in model.inputs.items()
    }
    assert {*feeding.inputs} == {*columns}
    assert blocks <= blocks_of(feeding)
    assert not any(node.part.block.draws for node in feeding.root.nodes)  # type: ignore[union-attr]
    assert feeds_of(objective) == {port: column for column, port in columns.items()}
    assert unfed(objective, model.inputs) == {}


def test_only_what_the_asked_inputs_need_is_computed() -> None:
    """The mask needs the source alone."""
    feeding = feeding_graph(graph("translation"), ["source_mask"], registry())

    assert ([*feeding.inputs], [*feeding.outputs]) == (["source"], ["source_mask"])
    assert blocks_of(feeding) == {"not_padding@1"}


def test_a_value_that_tells_where_noise_is_is_refused() -> None:
    """Prediction has no noise; the ids to which it is added are read without it."""
    spec = load("masked-language-model", kind="objectives")
    value = spec.value()
    value["nodes"]["model"]["in"]["mask"] = "noise.selected"
    value["nodes"]["cross_entropy"]["in"]["mask"] = "mask.y"
    objective = check(type(spec.form).model_validate(value), registry(), spec.overrides)

    with pytest.raises(InputError, match="'noise' is made of noise, and prediction has none"):
        feeding_graph(objective, ["mask"], registry())
    assert [*unfed(objective, ["mask", "tokens"])] == ["mask"]


@pytest.mark.parametrize(
    ("name", "masks"), [("translation", {"source_mask"}), ("classification", {"mask"})]
)
def test_without_an_objective_a_mask_is_that_of_the_only_ids(
    name: str, masks: Collection[str]
) -> None:
    """Other inputs are columns of their names."""
    model = deployed_graph(graph(name))

    feeding = feeding_by_name(model, registry(), model.inputs)

    assert {*feeding.inputs} == model.inputs.keys() - masks
    assert {*feeding.outputs} == {*model.inputs}
    assert blocks_of(feeding) == {"not_padding@1"}


def test_the_text_that_is_translated_is_the_source() -> None:
    """The target, which decoding writes, is not among the texts that are read."""
    assert read_texts(graph("translation")) == {"source": "source"}
    assert source_among({"source", "draft"}) == "source"
    assert source_among({"draft", "text"}) == "draft"
    assert source_among(()) is None
