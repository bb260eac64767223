"""Tests of reserved names: no name in a spec collides with names of generated modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from weft.graphs.checker.declarations import ARGUMENT_WORDS, MODULE_WORDS, NODE_WORDS

if TYPE_CHECKING:
    from collections.abc import Callable

    Edit = Callable[..., dict[str, Any]]


def test_the_words_of_a_module_are_torchs() -> None:
    """Add new attributes of a new torch version to the list."""
    torch = pytest.importorskip("torch")

    public = {name for name in dir(torch.nn.Module()) if not name.startswith("_")}

    assert public <= NODE_WORDS
    assert MODULE_WORDS - public <= {"ipu", "mtia", "xpu", "set_submodule"}


@pytest.mark.parametrize(
    "name",
    sorted(
        {"forward", "training", "tie", "begin", "read_prompt", "step", "zip", "class", "None", "to"}
    ),
)
def test_a_node_may_not_be_called_so(
    name: str, edit: Edit, findings_of: Callable[..., Any]
) -> None:
    """It would hide an attribute of the module, or be a syntax error."""
    spec = edit(
        {
            f"/nodes/{name}": {"use": "layer_norm@1", "in": {"x": "decoder.x"}},
            "/nodes/head/in/x": f"{name}.y",
        }
    )

    assert [(f.code, f.at) for f in findings_of(spec)] == [("N09", f"/nodes/{name}")]


@pytest.mark.parametrize("name", sorted({*ARGUMENT_WORDS, "lambda", "True"}))
def test_a_port_may_not_be_called_so(
    name: str, edit: Edit, findings_of: Callable[..., Any]
) -> None:
    """It would hide a variable of the generated function."""
    layer = "/blocks/encoder_layer"
    spec = edit(
        {
            f"{layer}/inputs/{name}": "mask[B S]",
            f"{layer}/nodes/self_attention/in/mask": name,
            "/nodes/encoder/in": {"x": "source_position.y", name: "source_mask"},
        },
        [f"{layer}/inputs/mask"],
    )

    assert [(f.code, f.at) for f in findings_of(spec)] == [("N09", f"{layer}/inputs/{name}")]


@pytest.mark.parametrize("name", ["forward", "heads", "weight", "type"])
def test_a_port_may_be_called_like_a_method(
    name: str, edit: Edit, findings_of: Callable[..., Any]
) -> None:
    """Ports are arguments, not attributes."""
    spec = edit(
        {f"/inputs/{name}": "mask[B S]", "/nodes/encoder/in/mask": name}
        | {"/nodes/decoder/in/mask": name},
        ["/inputs/source_mask"],
    )

    assert findings_of(spec) == []


@pytest.mark.parametrize("name", ["none", "True", "FALSE"])
def test_a_template_may_not_have_a_constant_for_its_class(
    name: str, edit: Edit, findings_of: Callable[..., Any]
) -> None:
    """`class None:` is a syntax error."""
    spec = edit({"/nodes/encoder/block": name})
    spec["blocks"][name] = spec["blocks"].pop("encoder_layer")

    assert [(f.code, f.at) for f in findings_of(spec)] == [("N09", f"/blocks/{name}")]
    assert [f.at for f in findings_of(edit({"/name": name}))] == ["/name"]
