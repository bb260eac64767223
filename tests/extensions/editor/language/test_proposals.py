"""Values that are proposed for the params of a block."""

from __future__ import annotations

from typing import Any

import pytest
from weft.blocks.registry import registry
from weft.extensions.editor.language.proposals import named_sizes, proposals, widths_in

SPEC: dict[str, Any] = {
    "inputs": {"ids": "ids:vocab[B T]"},
    "blocks": {"layer": {"inputs": {"x": "f[B T width]"}}},
}
VALUES = {"layers": 6, "vocab": 100, "width": 64, "d_k": 16, "heads": 4}


def test_a_param_in_the_type_of_an_input_is_a_size() -> None:
    """A number of layers that has the same value is none."""
    sizes = named_sizes(SPEC, VALUES)
    assert sizes == {100: "vocab", 64: "width", 16: "d_k"}


def test_the_widths_of_types_are_their_numbers() -> None:
    """Not the lengths of axes that have names, nor the factors in them."""
    assert widths_in(["f[B 2*T+1 64]", "ids:100[B T]", "mask[B T]"]) == [64, 100]


@pytest.mark.parametrize(
    ("use", "params", "widths", "first"),
    [
        ("linear@1", {}, [64], {"d_out": "=width"}),
        ("linear@1", {}, [7], {"d_out": 7}),
        ("gru@1", {}, [100, 64], {"d_hidden": "=vocab"}),
        ("convolution@1", {}, [64], {"d_out": "=width", "kernel": 3}),
        ("convolution@1", {"kernel": 5}, [64], {"d_out": "=width"}),
        ("attention@1", {}, [64], {"heads": "=heads"}),
        ("layer_norm@1", {}, [64], {}),
    ],
)
def test_the_first_proposal(
    use: str, params: dict[str, Any], widths: list[int], first: dict[str, Any]
) -> None:
    """A param of the same name, then the width of the place for a width, then the example."""
    block = registry().get(use)
    assert block is not None
    sizes = named_sizes(SPEC, VALUES)
    assert next(proposals(block, params, VALUES, sizes, widths)) == first
