"""Outputs step by step, as the comparison of an import computes them."""

from __future__ import annotations

import pytest
import torch
import weft
from weft.extensions.interop.importing.comparison import outputs_by_steps
from weft.runtime.codegen.examples import example_inputs
from weft.runtime.spec.check import graph_of
from weft.specs.load import load

SMALL = {"d_model": 8, "heads": 2, "d_ff": 8, "layers": 1, "vocab": 11}


@pytest.mark.integration
@pytest.mark.parametrize("name", ["gpt2", "bart"])
def test_steps_give_the_outputs_of_the_parallel_pass(name: str) -> None:
    """A prompt at once, positions one by one, and the rest at once."""
    graph = graph_of(load(name, SMALL))
    model = weft.build(graph, seed=1).eval()
    inputs = example_inputs(graph, {"B": 2, "T": 23})

    stepped = outputs_by_steps(graph, model, inputs)

    with torch.no_grad():
        torch.testing.assert_close(stepped, model(**inputs))


def test_a_model_that_does_not_decode_has_no_steps() -> None:
    """It is compared by its parallel pass alone."""
    assert outputs_by_steps(graph_of(load("bert", SMALL)), torch.nn.Identity(), {}) == {}
