"""Tests of the module that decodes: prepacked matrices give the same results."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.blocks.kernels import prepacked as module
from weft.blocks.kernels import quantized
from weft.blocks.kernels.prepacked import PackedLinear, can_pack, prepack
from weft.blocks.kernels.quantized import Int8Linear
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.execution import Execution, KernelChoice
from weft.runtime.codegen.build import build
from weft.runtime.codegen.generated import program_of
from weft.runtime.compile.decode_compile import Steps
from weft.runtime.compile.decoder import Passes, decoder_of, passes_of, use_passes, use_steps
from weft.runtime.decode.stepper import ModelStepper
from weft.specs.findings import InputError
from weft.specs.load import load

SMALL = {"vocab": 11, "d_model": 8, "heads": 2, "d_ff": 12, "layers": 2}
needs_packing = pytest.mark.needs("prepacking")


@pytest.fixture
def model() -> nn.Module:
    """Return a small Transformer."""
    return build(check(load("transformer-tiny").form, registry(), SMALL)).eval()


def decoding(model: nn.Module, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Return the module that decodes with the weights of a model."""
    return decoder_of(model).module(model, dtype)


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
        made = decoding(model)
        torch.testing.assert_close(logits(made, fixed), logits(model, fixed))

    assert not [one for one in made.modules() if isinstance(one, nn.Linear)]
    assert sum(isinstance(one, PackedLinear) for one in made.modules()) == 2 * (6 + 10) + 1
    assert list(model.state_dict()) == list(made.state_dict()) == names
    assert not [one for one in model.modules() if isinstance(one, PackedLinear)]
    assert [id(one) for one in made.parameters()] == [id(one) for one in model.parameters()]
    assert "prepack(self, torch.float32)" in program_of(made).source


@needs_packing
def test_bfloat16_is_that_of_autocast(model: nn.Module) -> None:
    """In bfloat16 the results are those of autocast, up to its rounding."""
    fixed = inputs()

    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found, expected = logits(decoding(model, torch.bfloat16), fixed), logits(model, fixed)

    assert found.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)


@needs_packing
def test_the_module_is_made_once_and_follows_the_weights(model: nn.Module) -> None:
    """After a fused optimizer step, loaded weights or a new parameter, it packs again."""
    fixed = inputs()
    with torch.no_grad():
        made = decoding(model)
        before = logits(made, fixed)

    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=True)
    logits(model, fixed).square().mean().backward()
    optimizer.step()
    with torch.inference_mode():
        assert decoding(model) is made
        assert (logits(made, fixed) - before).abs().max() > 0.01
        torch.testing.assert_close(logits(made, fixed), logits(model, fixed))

    model.load_state_dict({name: value * 0.5 for name, value in model.state_dict().items()})
    linear: Any = model.get_submodule("decoder.0.feed_forward.f.inner")
    linear.bias = nn.Parameter(linear.bias.detach() + 1.0)
    with torch.inference_mode():
        assert decoding(model) is made
        torch.testing.assert_close(logits(made, fixed), logits(model, fixed))


@needs_packing
def test_a_decoder_runs_prepacked(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps use prepacked matrices and agree with the logits of the parallel pass."""
    calls: list[Any] = []
    forward = PackedLinear.forward

    def counted(self: PackedLinear, x: Tensor) -> Tensor:
        calls.append(self)
        return forward(self, x)

    monkeypatch.setattr(PackedLinear, "forward", counted)
    fixed = inputs()
    with torch.inference_mode():
        expected = logits(model, fixed)
        stepper = ModelStepper(model, fixed, beams=1, length=3)
        for place, tokens in enumerate(torch.tensor([[1, 4], [2, 5], [3, 6]])):
            torch.testing.assert_close(stepper.step(tokens, place), expected[:, place])

    assert calls


@needs_packing
def test_two_models_with_different_kernels_decode_beside_each_other(model: nn.Module) -> None:
    """Each keeps its kernels and its own prepacked matrices; hooks of a model run."""
    kernels = KernelChoice("torch", {"*": "plain"})
    other = build(replace(program_of(model).graph, execution=Execution(kernels=kernels))).eval()
    seen: list[str] = []
    other.get_submodule("decoder.1").register_forward_hook(lambda *_: seen.append("decoder.1"))
    fixed = inputs()

    with torch.no_grad():
        first, second = decoding(model), decoding(other)
        torch.testing.assert_close(logits(first, fixed), logits(model, fixed))
        logits(second, fixed)

    attention: Any = second.get_submodule("decoder.0.self_attention.f")
    plain: Any = first.get_submodule("decoder.0.self_attention.f")
    assert attention.cores == {"*": "plain"}
    assert plain.cores == type(plain).cores != attention.cores
    assert seen == ["decoder.1"]


@pytest.mark.parametrize("mkl", [True, False], ids=["MKL", "oneDNN alone"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_have_few_numbers_of_rows(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, *, mkl: bool
) -> None:
    """Each number is compiled and kept, so rows of zeros are added; no result depends on them.

    One row in float32 is MKL's where that is faster.
    """
    monkeypatch.setattr(module, "one_row_by_mkl", lambda _: mkl)
    linear, packed = nn.Linear(6, 5), PackedLinear(6, 5, dtype)
    for name, parameter in linear.named_parameters():
        packed.register_parameter(name, parameter)
    sizes = set[int]()

    class Counted:
        """The operators of torch, as every processor computes them."""

        def _reorder_linear_weight(self, matrix: Tensor, _: object) -> Tensor:
            return matrix

        def _linear_pointwise(
            self, x: Tensor, matrix: Tensor, bias: Tensor | None, *_: object
        ) -> Tensor:
            sizes.add(x.numel() // 6)
            return nn.functional.linear(x, matrix, bias)

    monkeypatch.setattr(module, "_ops", Counted)
    with torch.no_grad():
        for rows in (*range(301), 1000):
            x = torch.randn(rows, 1, 6)
            tolerance = 1e-5 if dtype == torch.float32 else 0.05
            torch.testing.assert_close(packed(x).float(), linear(x), rtol=0, atol=tolerance)

    one_packed = not mkl or dtype == torch.bfloat16
    assert sizes - {1} == {
        0, *range(2, 33), *range(34, 65, 2), *range(68, 129, 4), *range(136, 257, 8),
        272, 288, 304, 1024,
    }  # fmt: skip
    assert (1 in sizes) is one_packed


@needs_packing
def test_shared_modules_are_prepacked_once_and_subclasses_not() -> None:
    """A shared module is prepacked once; a subclass of a linear map is not prepacked."""

    class Gate(nn.Linear):
        """A linear map that computes more than its product."""

        def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - as in torch
            return super().forward(input).sigmoid()

    linear = nn.Linear(4, 4)
    whole: Any = nn.ModuleDict({"a": linear, "b": linear, "gate": Gate(4, 4)})

    prepack(whole, torch.float32)

    assert isinstance(whole["a"], PackedLinear)
    assert whole["a"] is whole["b"]
    assert isinstance(whole["gate"], Gate)


@needs_packing
def test_a_model_that_is_not_as_built_decodes_itself(model: nn.Module) -> None:
    """A model of another origin, one with a module of another class, and one in training."""
    other: Any = nn.ModuleDict({"a": nn.Linear(4, 4)}).eval()
    with torch.no_grad():
        assert decoding(other) is other
        assert decoding(model.train()) is model
        assert decoding(model.eval()) is not model
        changed: Any = copy.deepcopy(model)
        changed.head = nn.Sequential(changed.head)
        assert decoding(changed) is changed


@pytest.mark.usefixtures("int8")
def test_models_that_cannot_use_int8_are_refused(
    model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting without effect is an error; copies of a model start without passes."""
    monkeypatch.setattr(quantized, "LEAST", dict.fromkeys(quantized.LEAST, 1))
    int8 = Passes(quantize="int8")
    use_passes(model, int8)
    with torch.no_grad():
        assert any(isinstance(one, Int8Linear) for one in decoding(model).modules())
        with pytest.raises(InputError, match="float32 tensors"):
            decoding(model, torch.float64)
        changed: Any = copy.deepcopy(model)
        assert passes_of(changed) == Passes()
        use_passes(changed, int8)
        changed.head = nn.Sequential(changed.head)
        with pytest.raises(InputError, match="modules were replaced"):
            decoding(changed)
    with pytest.raises(InputError, match="gradients"):
        decoding(model)
    encoder = build(check(load("bert").form, registry(), {"layers": 1, "vocab": 11, "d_model": 12}))
    with pytest.raises(InputError, match="does not decode step by step"):
        use_passes(encoder, int8)
    with pytest.raises(InputError, match="on the CPU"):
        use_passes(model.to("meta"), Passes(without=frozenset({"unpad"})))


def test_a_torch_without_exact_products_in_int8_is_refused(
    model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says so, and a way out; the passes of the model stay."""
    monkeypatch.setattr(quantized, "library", lambda: None)

    with pytest.raises(
        InputError, match="no library of this torch computes them exactly"
    ) as caught:
        use_passes(model, Passes(quantize="int8"))

    assert caught.value.help.startswith("leave 'quantize' out")
    assert passes_of(model) == Passes()


@needs_packing
def test_an_unsupported_model_is_not_prepacked(
    model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its matrices stay as they are with gradients, in float64, or without support in torch."""

    def packs(dtype: torch.dtype = torch.float32) -> bool:
        return any(isinstance(one, PackedLinear) for one in decoding(model, dtype).modules())

    assert not packs()
    with torch.no_grad():
        assert packs()
        assert not packs(torch.float64)
        monkeypatch.setattr(module, "_ops", object)
        can_pack.cache_clear()
        assert not packs()
        monkeypatch.undo()
        can_pack.cache_clear()
        model.double()
        assert not packs()


def test_copies_and_pickles_of_a_model_have_their_own_decoder(model: nn.Module) -> None:
    """The choice of a model does not reach its copies."""
    use_steps(model, Steps("on"))

    copies = copy.deepcopy(model), pickle.loads(pickle.dumps(model))

    assert [decoder_of(one).steps.mode for one in (model, *copies)] == [
        "compiled",
        "plain",
        "plain",
    ]
