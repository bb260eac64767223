"""Tests of selections in a checked graph, copy by copy."""

from __future__ import annotations

from typing import Any

import pytest
from weft.graphs.ir.graph import Graph
from weft.graphs.passes.freeze import chosen
from weft.runtime.spec.check import graph_of
from weft.specs.findings import InputError
from weft.specs.load import load


def graph(name: str = "transformer-base", **params: Any) -> Graph:
    """Return the graph of a shipped spec with three layers."""
    return graph_of(load(name, {"layers": 3, **params}))


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("encoder.*", ("encoder.0", "encoder.1", "encoder.2")),
        ("encoder", ("encoder.0", "encoder.1", "encoder.2")),
        ("encoder.1-2", ("encoder.1", "encoder.2")),
        ("encoder.**", ("encoder.0", "encoder.1", "encoder.2")),
        ("decoder.0.*_attention", ("decoder.0.cross_attention", "decoder.0.self_attention")),
        ("*.2.feed_forward/f", ("decoder.2.feed_forward.f", "encoder.2.feed_forward.f")),
        ("decoder.1.*/*", ()),
        ("head", ("head",)),
        ("/blocks/encoder_*", ("encoder.0", "encoder.1", "encoder.2")),
        (
            "encoder.**[use=attention@1]",
            tuple(f"encoder.{layer}.self_attention.f" for layer in range(3)),
        ),
        ("**[params.causal=true]", tuple(f"decoder.{n}.self_attention.f" for n in range(3))),
    ],
)
def test_a_selection_names_modules(text: str, paths: tuple[str, ...]) -> None:
    """The outermost ones, by their paths in the model."""
    if not paths:
        expected = tuple(
            f"decoder.1.{name}.f" for name in ("cross_attention", "feed_forward", "self_attention")
        )
        assert chosen(graph(), text) == expected
        return
    assert chosen(graph(), text) == paths


def test_copies_that_share_weights_are_one_module() -> None:
    """A Universal Transformer applies its stack repeatedly."""
    shared = chosen(graph_of(load("universal-transformer")), "encoder.*")

    assert len(shared) == 1
    assert not shared[0].split(".")[-1].isdigit()


@pytest.mark.parametrize(
    ("text", "problem", "help_"),
    [
        ("encodr.*", "'encodr.*' selects nothing in 'transformer-base'", "mean 'encoder.*'?"),
        ("encoder.7", "'encoder.7' selects nothing", ""),
        ("encoder.*[use=linear@1]", "does not match the brackets", ""),
        ("encoder..f", "a segment is missing: 'encoder..f'", "write a path such as"),
        ("/", "'/' selects the complete model", "encoder.*"),
    ],
)
def test_an_empty_selection_names_the_nearest_path(text: str, problem: str, help_: str) -> None:
    """With its place and the nearest path."""
    with pytest.raises(InputError) as caught:
        chosen(graph(), text, location="/activation_checkpointing")

    assert problem in caught.value.problem
    assert caught.value.location == "/activation_checkpointing"
    assert help_ in caught.value.help
