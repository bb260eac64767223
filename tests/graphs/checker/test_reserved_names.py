"""Names: what a spec may call its parts, and the few words that are taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from weft.graphs.checker.declarations import ATTRIBUTES
from weft.graphs.ir.python_names import ARGUMENTS

if TYPE_CHECKING:
    from collections.abc import Callable

    Edit = Callable[..., dict[str, Any]]

FREE = (
    *("half", "global", "type", "step", "train", "class", "forward", "tie", "weights", "zip", "to"),
    *("state", "layer", "self", "None", "begin", "parameters", "print", "Tensor", "read_prompt"),
)
"""Words of Python, of torch, and of generated code."""


@pytest.mark.parametrize("name", FREE)
def test_a_node_a_port_and_a_template_may_be_called_so(
    name: str, edit: Edit, findings_of: Callable[..., Any]
) -> None:
    """Generated code writes them in another way."""
    layer = f"/blocks/{name}"
    spec = edit({f"/nodes/{name}": {"use": "layer_norm@1", "in": {"x": "decoder.x"}}})
    spec["nodes"]["head"]["in"]["x"] = f"{name}.y"
    spec["blocks"][name] = spec["blocks"].pop("encoder_layer")
    spec["nodes"]["encoder"] |= {
        "block": name,
        "in": {"x": "source_position.y", name: "source_mask"},
    }
    spec["blocks"][name]["inputs"][name] = spec["blocks"][name]["inputs"].pop("mask")
    spec["blocks"][name]["nodes"]["self_attention"]["in"]["mask"] = name

    assert findings_of(spec) == [], layer


@pytest.mark.parametrize("name", sorted(ATTRIBUTES))
def test_a_node_may_not_have_the_name_of_what_modules_set(
    name: str, edit: Edit, findings_of: Callable[..., Any]
) -> None:
    """Torch itself sets `training` in every module."""
    spec = edit({f"/nodes/{name}": {"use": "layer_norm@1", "in": {"x": "decoder.x"}}})
    spec["nodes"]["head"]["in"]["x"] = f"{name}.y"

    assert [(f.code, f.at) for f in findings_of(spec)] == [("N09", f"/nodes/{name}")]


@pytest.mark.parametrize(
    "name", [*sorted({*ARGUMENTS, "lambda", "True"}), "forward", "heads", "weight", "type"]
)
def test_an_input_of_a_spec_may_not_be_called_like_an_argument(
    name: str, edit: Edit, findings_of: Callable[..., Any]
) -> None:
    """It is an argument of the model, next to others; it may be called like a method."""
    spec = edit(
        {f"/inputs/{name}": "mask[B S]", "/nodes/encoder/in/mask": name}
        | {"/nodes/decoder/in/mask": name},
        ["/inputs/source_mask"],
    )

    refused = name not in ("forward", "heads", "weight", "type")
    expected = [("N09", f"/inputs/{name}")] if refused else []
    assert [(f.code, f.at) for f in findings_of(spec)] == expected
