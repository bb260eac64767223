"""Built models are copied and pickled like any module, in this process and in a fresh one."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from torch import nn
from weft.runtime.codegen import generated

SMALL = {"vocab": 11, "d_model": 8, "heads": 2, "d_ff": 12, "layers": 2}


def built(how: str) -> Any:
    """Return a small model with a state of its own, transformed in one of several ways."""
    graph = weft.load("transformer-tiny", **SMALL).graph()
    if how in ("unpadded", "checkpointed"):
        graph = weft.unpad(graph)
    if how == "checkpointed":
        graph = weft.checkpoint_activations(graph, ["encoder.*"])
    model: Any = weft.build(graph)
    if how == "compiled":
        weft.compile(model, "layers")
    model.encoder[0].eval()
    model.encoder[1].feed_forward.f.requires_grad_(requires_grad=False)
    model.register_buffer("seen", torch.tensor([3]))
    return model


def by_torch(model: nn.Module) -> Any:
    """Return what `torch.load` makes of `torch.save`."""
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def by_pickle(model: nn.Module) -> Any:
    """Return an unpickled model."""
    return pickle.loads(pickle.dumps(model))


def assert_same(model: Any, again: Any) -> None:
    """Check the states of two models, and their outputs in training and in evaluation."""
    assert again is not model
    assert type(again) is type(model)
    assert [m.training for m in again.modules()] == [m.training for m in model.modules()]
    assert [p.requires_grad for p in again.parameters()] == [
        p.requires_grad for p in model.parameters()
    ]
    assert again.head.weight is again.source_embedding.weight
    assert again.head.weight is not model.head.weight
    torch.testing.assert_close(again.state_dict(), model.state_dict(), rtol=0, atol=0)
    inputs = weft.example_inputs(model)
    for one in (model, again):
        torch.manual_seed(3)
        one(**inputs)["logits"].sum().backward()
    assert torch.equal(again.head.weight.grad, model.head.weight.grad)
    model.eval(), again.eval()
    assert torch.equal(again(**inputs)["logits"], model(**inputs)["logits"])


@pytest.mark.integration
@pytest.mark.parametrize("how", ["built", "unpadded", "checkpointed"])
@pytest.mark.parametrize("copied", [copy.deepcopy, by_pickle, by_torch])
def test_a_copy_has_the_same_state(how: str, copied: Callable[[nn.Module], Any]) -> None:
    """Weights, buffers, ties, flags and the transformations of training are kept."""
    model = built(how)

    again = copied(model)

    assert_same(model, again)
    assert hasattr(again, "batched") == (how != "built")


@pytest.mark.slow
@pytest.mark.usefixtures("own_compiler")
def test_a_copy_of_a_compiled_model_is_eager() -> None:
    """As for any module that `Module.compile` compiled; compile the copy to use it so."""
    model = built("compiled")

    for again in (copy.deepcopy(model), by_pickle(model)):
        assert model.encoder[0]._compiled_call_impl is not None
        assert again.encoder[0]._compiled_call_impl is None


def test_a_pickle_checks_its_spec_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not again for each of its modules, which took half a minute for a hundred nodes."""
    content, check = pickle.dumps(built("built")), generated.check
    calls: list[int] = []
    monkeypatch.setattr(generated, "check", lambda *a, **k: [calls.append(1), check(*a, **k)][1])

    pickle.loads(content)

    assert len(calls) == 1


def test_a_part_of_a_model_can_be_pickled() -> None:
    """A layer is an object of a generated class too."""
    layer = built("built").encoder[1]

    again = by_pickle(layer)

    assert type(again) is type(layer)
    torch.testing.assert_close(again.state_dict(), layer.state_dict())


@pytest.mark.slow
def test_a_fresh_process_opens_a_pickle(tmp_path: Path) -> None:
    """There, the classes are generated again from the spec in the pickle."""
    model = built("unpadded").eval()
    inputs = weft.example_inputs(model)
    file = tmp_path / "model.pickle"
    file.write_bytes(pickle.dumps((model, inputs, model(**inputs)["logits"])))
    code = f"""
import pickle, torch
model, inputs, expected = pickle.load(open({str(file)!r}, "rb"))
assert type(model).__name__ == "TransformerTiny"
torch.testing.assert_close(model(**inputs)["logits"], expected)
model.train()(**inputs)
assert model.batched.rows, "it is not unpadded"
"""

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_a_model_on_meta_gets_its_weights_later() -> None:
    """Without values at first; ties hold after `to_empty` and after assigning a state dict."""
    full: Any = weft.build(weft.load("transformer-tiny", **SMALL))
    inputs = weft.example_inputs(full)
    moved: Any = weft.build(weft.load("transformer-tiny", **SMALL), device="meta")
    given: Any = weft.build(weft.load("transformer-tiny", **SMALL), device="meta")
    assert all(weight.is_meta for weight in moved.parameters())

    moved.to_empty(device="cpu")
    moved.load_state_dict(full.state_dict())
    given.load_state_dict(full.state_dict(), assign=True)

    for model in (moved, given):
        assert model.head.weight is model.source_embedding.weight
        assert torch.equal(model.eval()(**inputs)["logits"], full.eval()(**inputs)["logits"])


def test_weights_that_were_untied_stay_untied() -> None:
    """Moving a model restores only the ties that it has."""
    model: Any = weft.build(weft.load("transformer-tiny", **SMALL))
    model.head.weight = nn.Parameter(model.head.weight.detach().clone())

    model.to(torch.float64)

    assert model.head.weight is not model.source_embedding.weight
