"""After the passes of decoding, steps give the same outputs, for every shipped spec."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.blocks.kernels import quantized
from weft.blocks.kernels.decode_state import Capacity
from weft.blocks.kernels.prepacked import PackedLinear, can_pack, is_plain
from weft.blocks.kernels.quantized import Int8Linear
from weft.graphs.ir.execution import Prepacked
from weft.graphs.ir.graph import Graph
from weft.graphs.passes.pipeline import DecodePasses, PassSettings, after
from weft.runtime.codegen.build import build
from weft.runtime.codegen.generated import program_of
from weft.runtime.compile.decoder import decoder_of, decoding_module

from ...test_shipped import STEP_LENGTH, STEPPED, inputs_of, perturbed, small


def steps(model: Any, made: Graph, inputs: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """Return the outputs of every step, one position at a time."""
    axis = made.step_axis or ""
    moving = {port: t.axes.index(axis) for port, t in made.inputs.items() if axis in t.axes}
    fixed = {port: value for port, value in inputs.items() if port not in moving}
    rows = next(iter(inputs.values())).size(0)
    length = next(inputs[port].size(place) for port, place in moving.items())
    with torch.inference_mode():
        state = model.begin(Capacity(rows, 1, length, torch.float32, torch.device("cpu")), **fixed)
        return [
            model.step(
                **{port: inputs[port].narrow(place, at, 1) for port, place in moving.items()},
                state=state,
                position=at,
            )
            for at in range(length)
        ]


def assert_decodes_alike(model: nn.Module, name: str, made: Graph) -> nn.Module:
    """Compare a model with the module that decodes for it; return the latter."""
    packs: Prepacked | None = "float32" if can_pack(torch.float32) else None
    decoding = decoding_module(model, DecodePasses(unpad=True, prepacked=packs, compiled=True))
    inputs = inputs_of(name, made)

    assert decoding is not None
    found, expected = steps(decoding, made, inputs), steps(model, made, inputs)
    assert len(found) >= min(STEP_LENGTH, 2)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    plain = any(isinstance(one, nn.Linear) for one in model.modules())
    assert (
        not plain
        or packs is None
        or any(isinstance(one, PackedLinear) for one in decoding.modules())
    )
    return decoding


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPPED)
def test_every_shipped_model_decodes_alike(name: str) -> None:
    """Its matrices are prepacked, and the steps of its layers go through `CompiledSteps`."""
    made = small(name)

    decoding = assert_decodes_alike(perturbed(build(made)), name, made)

    execution = program_of(decoding).graph.execution
    assert execution.compiled
    for path in execution.compiled:
        assert type(decoding.get_submodule(path)).__name__.startswith("Compiled"), path


@pytest.mark.slow
@pytest.mark.usefixtures("int8")
@pytest.mark.parametrize("name", STEPPED)
def test_every_shipped_model_decodes_in_int8(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every product is that of a rounded matrix and rounded inputs, in float32."""
    monkeypatch.setattr(quantized, "LEAST", dict.fromkeys(quantized.LEAST, 1))
    made = small(name)
    model, inputs = perturbed(build(made)), inputs_of(name, made)
    decoding = decoding_module(model, DecodePasses(quantized="float32"))
    assert decoding is not None
    multiply, checked = Int8Linear.multiply, set[nn.Module]()

    def compared(self: Int8Linear, x: Tensor) -> Tensor:
        y = multiply(self, x)
        assert self.weight is not None
        # Where rounding errors decide between two levels, one input may differ by a level.
        level = float(x.abs().max() / 127 * self.weight.abs().max())
        torch.testing.assert_close(y, by_definition(self, x), rtol=1e-5, atol=1e-5 + level)
        checked.add(self)
        return y

    monkeypatch.setattr(Int8Linear, "multiply", compared)

    found = steps(decoding, made, inputs)

    assert all(bool(one.isfinite().any()) for step in found for one in step.values())
    maps = [one for one in decoding.modules() if isinstance(one, Int8Linear)]
    assert bool(maps) == any(map(is_plain, model.modules()))
    assert bool(checked) == bool(maps)


def by_definition(one: Any, x: Tensor) -> Tensor:
    """Return the product of a rounded matrix and rounded inputs, in float32."""
    library = quantized.library()
    assert library is not None
    weight = on_grid(one.weight.detach(), library.levels)
    return nn.functional.linear(on_grid(x), weight, one.bias)


def on_grid(values: Tensor, levels: int = 127) -> Tensor:
    """Return the rows of a tensor, rounded to so many levels on either side of zero."""
    scale = values.abs().amax(-1, keepdim=True) / levels
    return torch.where(scale > 0, (values / scale).round() * scale, values)


def test_a_model_that_trains_decodes_alike() -> None:
    """Its graph is unpadded and checkpointed, of which decoding knows nothing."""
    made = small("transformer-tiny")
    settings = PassSettings(activation_checkpointing=("decoder.*",))
    model = perturbed(build(after(made, settings)))

    decoding = assert_decodes_alike(model, "transformer-tiny", made)

    source = program_of(decoding).source
    assert "class CheckpointedDecoderLayer" in program_of(model).source
    assert "Checkpointed" not in source
    assert "self.training" not in source


@pytest.mark.parametrize("how", ["another class", "another module"])
def test_a_module_that_is_replaced_after_decoding_is_used(how: str) -> None:
    """Another class decodes as the model is; a module of the same class is prepacked again."""
    made = small("transformer-tiny")
    model = perturbed(build(made)).eval()
    layer: Any = model.get_submodule("encoder.0.feed_forward.f")
    with torch.inference_mode():
        first = decoder_of(model).module(model, torch.float32)
        assert first is not model
        assert decoder_of(model).module(model, torch.float32) is first

        if how == "another class":
            layer.inner = nn.Sequential(layer.inner)
            assert decoder_of(model).module(model, torch.float32) is model
            return
        layer.inner = copy.deepcopy(layer.inner)
        layer.inner.weight.mul_(2.0)
        second = decoder_of(model).module(model, torch.float32)
    assert second is not first
    assert_decodes_alike(model, "transformer-tiny", made)
