"""Inputs of a built module: wrong ones are refused before it runs, compiled code checks none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from torch import Tensor

SMALL = {"vocab": 11, "d_model": 8, "heads": 2, "d_ff": 12, "layers": 1}
Inputs = dict[str, Any]


@pytest.fixture(scope="module")
def model() -> Any:
    """Return a small model."""
    return weft.build(weft.load("transformer-tiny", **SMALL)).eval()


def without(name: str) -> Callable[[Inputs], Inputs]:
    """Return a change that removes an input."""
    return lambda inputs: {key: value for key, value in inputs.items() if key != name}


def changed(name: str, change: Callable[[Tensor], object]) -> Callable[[Inputs], Inputs]:
    """Return a change of one input."""
    return lambda inputs: {**inputs, name: change(inputs[name])}


WRONG = {
    "float ids": (changed("source", Tensor.float), "'source' has dtype float32, not integer"),
    "bool ids": (changed("target", Tensor.bool), "'target' has dtype bool, not integer"),
    "float mask": (changed("source_mask", Tensor.float), "has dtype float32, not bool"),
    "integer mask": (changed("source_mask", Tensor.long), "has dtype int64, not bool"),
    "one sentence": (changed("target", lambda x: x[0]), "'target' has 1 axes, not 2"),
    "too many axes": (changed("source", lambda x: x[None]), "'source' has 3 axes, not 2"),
    "a list": (changed("target", Tensor.tolist), "'target' is of type list, not a tensor"),
    "missing": (without("source_mask"), "input 'source_mask' is missing"),
    "unknown": (lambda inputs: {**inputs, "sorce": inputs["source"]}, "unknown input 'sorce'"),
    "lengths": (
        changed("source_mask", lambda x: x[:, :-1]),
        r"axis S has different sizes: source.shape\[1\] = 6, source_mask.shape\[1\] = 5",
    ),
    "rows": (changed("target", lambda x: x[:1]), "axis B has different sizes"),
    "device": (changed("source", lambda x: x.to("meta")), "is on meta, the weights are on cpu"),
}


@pytest.mark.parametrize(("change", "problem"), WRONG.values(), ids=WRONG)
def test_a_wrong_input_is_refused(
    model: Any, change: Callable[[Inputs], Inputs], problem: str
) -> None:
    """Before, a float mask gave other logits, and other mistakes failed deep inside a block."""
    with pytest.raises(weft.InputError, match=problem) as caught:
        model(**change(weft.example_inputs(model)))

    assert caught.value.location
    assert caught.value.help


def test_inputs_have_no_order(model: Any) -> None:
    """A checkpoint sorts the keys of its spec, so positions would mean other inputs there."""
    inputs = weft.example_inputs(model)

    with pytest.raises(weft.InputError, match="3 of the inputs have no name") as caught:
        model(*inputs.values())
    assert caught.value.help.endswith("model(source=..., source_mask=..., target=...)")
    with pytest.raises(weft.InputError, match="1 of the inputs has no name"):
        model(inputs["source"], **inputs)


def test_a_fixed_size_and_a_sum_of_axes_are_checked(tmp_path: Path) -> None:
    """`f[B 4]` takes vectors of 4 numbers, and `f[B T+1 4]` one more row than `f[B T 4]`."""
    spec = {
        "format": 1,
        "name": "sums",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 4]", "y": "f[B T+1 4]"},
        "outputs": {"x": "a.y", "y": "b.y"},
        "nodes": {
            "a": {"use": "linear@1", "params": {"d_out": 2}, "in": {"x": "x"}},
            "b": {"use": "linear@1", "params": {"d_out": 2}, "in": {"x": "y"}},
        },
    }
    file = tmp_path / "sums.json"
    file.write_text(json.dumps(spec))
    model = weft.build(file)

    assert model(x=torch.randn(2, 3, 4), y=torch.randn(2, 4, 4))["y"].shape == (2, 4, 2)
    with pytest.raises(weft.InputError, match="'x' has size 5 on an axis of size 4"):
        model(x=torch.randn(2, 3, 5), y=torch.randn(2, 4, 5))
    with pytest.raises(weft.InputError, match=r"'y' has size 3 on an axis of size 4 = T\+1"):
        model(x=torch.randn(2, 3, 4), y=torch.randn(2, 3, 4))


def test_int32_ids_are_integers(model: Any) -> None:
    """Torch's embeddings accept them."""
    inputs = weft.example_inputs(model)
    short = {key: x.int() if x.dtype == torch.int64 else x for key, x in inputs.items()}

    assert torch.equal(model(**short)["logits"], model(**inputs)["logits"])


@pytest.mark.slow
def test_exported_code_checks_nothing(model: Any) -> None:
    """`torch.export` traces the computation alone: a float mask is not refused there."""
    inputs = weft.example_inputs(model)
    exported = torch.export.export(model, (), kwargs=inputs)

    assert torch.equal(exported.module()(**inputs)["logits"], model(**inputs)["logits"])
    wrong = {**inputs, "source_mask": inputs["source_mask"].float()}
    with pytest.raises(weft.InputError):
        model(**wrong)
    torch.export.export(model, (), kwargs=wrong)


def test_forward_is_annotated_and_documented(model: Any) -> None:
    """Type, dtype and meaning of every input and output."""
    doc = type(model).forward.__doc__

    assert "source: ids:11[B S], int64: integers below 11." in doc
    assert "source_mask: mask[B S], bool: true at positions that may be attended." in doc
    assert "logits: f[B T 11], float: vectors." in doc
    annotations = type(model).forward.__annotations__
    assert annotations["source"] == "Tensor"
    assert annotations["return"] == "dict[str, Tensor]"
