"""How weights grow with the width of a model, by hand and by the table of the paper."""

from __future__ import annotations

from typing import Any

import pytest
from weft.blocks.registry import registry
from weft.graphs.ir.graph import Graph
from weft.graphs.passes.widths import Growth, growth, wider_heads
from weft.runtime.spec.check import graph_of
from weft.runtime.train.recipe.optimizers import OPTIMIZERS
from weft.specs.findings import InputError
from weft.specs.load import load

BASE = {"vocab": 20, "d_model": 16, "heads": 1, "layers": 1}
WIDE = {**BASE, "d_model": 64, "heads": 4}
HIDDEN, TABLE = "encoder.0.self_attention.f.query.weight", "source_embedding.weight"


def graph(params: dict[str, Any], spec: str = "transformer-untied") -> Graph:
    """Return the graph of a spec with params."""
    return graph_of(load(spec, params))


@pytest.mark.parametrize(
    ("path", "expected", "size"),
    [
        (HIDDEN, Growth(4.0, 4.0, 1.0), 0.5),
        ("encoder.0.feed_forward.f.outer.weight", Growth(4.0, 4.0, 1.0), 0.5),
        ("head.weight", Growth(4.0, 1.0, 1.0), 0.25),
        (TABLE, Growth(1.0, 4.0, 2.0), 0.5),
        ("encoder.0.self_attention.norm.weight", Growth(1.0, 4.0, 1.0), 1.0),
    ],
)
def test_weights_grow_by_their_inputs_and_outputs(path: str, expected: Growth, size: float) -> None:
    """Four times as wide; a table is multiplied by the root of the width, which is twice as large.

    Initial entries fall with the root of the inputs, with the inputs in front of a fixed number of
    outputs, and for a table only with the multiplier (table 3).
    """
    grown = growth(graph(WIDE), graph(BASE))

    assert grown[path] == expected
    assert grown[path].size == size


@pytest.mark.parametrize(
    ("kind", "rates"),
    [
        ({"type": "adam"}, [0.25, 0.25, 0.5, 1.0]),
        ({"type": "sgd"}, [1.0, 0.25, 1.0, 4.0]),
        ({"type": "muon"}, [0.5, 0.25, 0.5]),
        ({"type": "muon", "scale": "spectral"}, [1.0, 0.5, 1.0]),
        ({"type": "adafactor"}, [0.5, 1.0, 1.0, 1.0]),
    ],
)
def test_rates_follow_the_optimizer(kind: dict[str, Any], rates: list[float]) -> None:
    """A hidden map, the head, a table and a vector, four times as wide.

    Adam and gradient descent by table 3, divided by the multiplier and its square.  Muon keeps the
    spectral norm near the root of outputs by inputs; its update in the size of Adam's has one that
    grows with the root of the larger side, 2.  Adafactor's rate is relative to the weight's size.
    """
    grown = growth(graph(WIDE), graph(BASE))
    paths = [HIDDEN, "head.weight", TABLE, "encoder.0.self_attention.norm.weight"]

    factors = [OPTIMIZERS.validate(kind).width_factor(grown[path]) for path in paths[: len(rates)]]

    assert factors == pytest.approx(rates)


def test_a_model_of_the_base_width_is_the_base() -> None:
    """Every factor is 1."""
    assert set(growth(graph(BASE), graph(BASE)).values()) == {Growth(1.0, 1.0, 1.0)}


def test_a_tied_table_and_map_are_refused() -> None:
    """One grows by its outputs, the other by its inputs; the help unties them."""
    with pytest.raises(InputError, match="transformer-untied") as error:
        growth(graph(WIDE, "transformer-base"), graph(BASE, "transformer-base"))
    assert "'source_embedding.weight' is tied to 'head.weight'" in error.value.problem


def test_a_base_of_other_layers_is_refused() -> None:
    """Its weights have no counterpart."""
    with pytest.raises(InputError, match="other weights"):
        growth(graph(WIDE), graph({**BASE, "layers": 2}))


def test_heads_that_get_wider_are_told() -> None:
    """Their number must grow instead."""
    assert list(wider_heads(graph(WIDE), graph(BASE))) == []
    wide = graph({**WIDE, "heads": 1})
    assert "encoder.0.self_attention.f" in list(wider_heads(wide, graph(BASE)))


@pytest.mark.parametrize("block", [block for block in registry() if block.fans])
def test_each_axis_of_a_weight_counts_something(block: Any) -> None:
    """Of blocks that say so: in known words, one for each axis."""
    for words in block.fans.values():
        assert words == "?" or set(words.split()) <= {"in", "out", "each"}
