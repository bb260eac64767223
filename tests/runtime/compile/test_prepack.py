"""Tests of prepacked weights: decoding gives the same results."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.blocks.feed_forward.elementwise_module import Gate
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.runtime.codegen.build import build
from weft.runtime.compile import prepack as unpad
from weft.runtime.compile.prepack import PackedLinear, can_pack, packed
from weft.runtime.decode.stepper import ModelStepper
from weft.specs.load import load

SMALL = {"vocab": 11, "d_model": 8, "heads": 2, "d_ff": 12, "layers": 2}
needs_packing = pytest.mark.skipif(
    not can_pack(torch.float32), reason="this torch packs no matrices on this processor"
)


@pytest.fixture
def model() -> nn.Module:
    """Return a small Transformer."""
    return build(check(load("transformer-tiny").form, registry(), SMALL)).eval()


def inputs() -> dict[str, Tensor]:
    """Return two sentences, the second one with padding."""
    mask = torch.arange(6) < torch.tensor([[6], [4]])
    return {"source": torch.randint(11, (2, 6)), "source_mask": mask}


def logits(model: nn.Module, fixed: dict[str, Tensor]) -> Tensor:
    """Return the outputs of a model for a fixed target."""
    found: Tensor = model(**fixed, target=torch.tensor([[1, 2, 3], [4, 5, 6]]))["logits"]
    return found


@needs_packing
def test_every_linear_map_is_prepacked_and_gives_equal_results(model: nn.Module) -> None:
    """In float32 results agree up to rounding; the model and its parameters are unchanged."""
    fixed, names = inputs(), list(model.state_dict())

    with torch.no_grad():
        made = packed(model, torch.float32)
        torch.testing.assert_close(logits(made, fixed), logits(model, fixed))

    assert not [one for one in made.modules() if isinstance(one, nn.Linear)]
    assert sum(isinstance(one, PackedLinear) for one in made.modules()) == 2 * (6 + 10) + 1
    assert list(model.state_dict()) == names
    assert not [one for one in model.modules() if isinstance(one, PackedLinear)]
    own = {id(one) for one in model.parameters()}
    assert {id(one) for one in made.parameters()} <= own


@needs_packing
def test_bfloat16_is_that_of_autocast(model: nn.Module) -> None:
    """In bfloat16 the results are those of autocast, up to its rounding."""
    fixed = inputs()

    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        made = packed(model, torch.bfloat16)
        found, expected = logits(made, fixed), logits(model, fixed)

    assert found.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)


@needs_packing
def test_a_prepacked_model_is_cached_until_a_parameter_changes(model: nn.Module) -> None:
    """A fused optimizer step, loaded weights or training mode invalidate the copy."""
    with torch.no_grad():
        first = packed(model, torch.float32)
        assert packed(model, torch.float32) is first
        before = logits(first, inputs_ := inputs())

    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=True)
    logits(model, inputs_).square().mean().backward()
    optimizer.step()
    with torch.inference_mode():
        second = packed(model, torch.float32)
        assert second is not first
        assert (logits(second, inputs_) - before).abs().max() > 0.01
        torch.testing.assert_close(logits(second, inputs_), logits(model, inputs_))

        model.load_state_dict({name: value * 0.5 for name, value in model.state_dict().items()})
        third = packed(model, torch.float32)
        torch.testing.assert_close(logits(third, inputs_), logits(model, inputs_))

        assert packed(model.train(), torch.float32).training
        assert not packed(model.eval(), torch.float32).training


@needs_packing
def test_a_decoder_runs_prepacked(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps use prepacked matrices and agree with the logits of the parallel pass."""
    calls: list[Any] = []
    forward = PackedLinear.forward
    monkeypatch.setattr(
        PackedLinear, "forward", lambda self, x: calls.append(self) or forward(self, x)
    )
    fixed = inputs()
    with torch.inference_mode():
        expected = logits(model, fixed)
        stepper = ModelStepper(model, fixed, beams=1, length=3)
        for place, tokens in enumerate(torch.tensor([[1, 4], [2, 5], [3, 6]])):
            torch.testing.assert_close(stepper.step(tokens, place), expected[:, place])

    assert calls


@needs_packing
def test_shared_modules_are_prepacked_once_and_subclasses_not() -> None:
    """A shared module is prepacked once; a subclass of a linear map is not prepacked."""
    linear = nn.Linear(4, 4)
    whole = nn.ModuleDict({"a": linear, "b": linear, "gate": Gate(4, 0.0)})

    with torch.no_grad():
        made: Any = packed(whole, torch.float32)

    assert isinstance(made["a"], PackedLinear)
    assert made["a"] is made["b"]
    assert made["gate"].weight is whole["gate"].weight  # type: ignore[union-attr]


def test_an_unsupported_model_is_not_prepacked(
    model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model itself is returned with gradients, in float64, or without support in torch."""
    assert packed(model, torch.float32) is model
    with torch.no_grad():
        assert packed(model, torch.float64) is model
        monkeypatch.setattr(unpad, "_ops", object)
        can_pack.cache_clear()
        assert packed(model, torch.float32) is model
        monkeypatch.undo()
        can_pack.cache_clear()
        model.double()
        assert packed(model, torch.float32) is model
