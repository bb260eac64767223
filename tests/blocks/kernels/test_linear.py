"""Matrix products: another kernel gives the same values."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from weft.blocks.kernels import prepacked
from weft.blocks.kernels.linear import LinearMap, linear, linear_maps, times_transposed, with_lora
from weft.blocks.kernels.prepacked import PackedLinear, can_pack

needs_onednn = pytest.mark.needs("oneDNN")


@needs_onednn
@pytest.mark.parametrize("biased", [True, False], ids=["bias", "no bias"])
def test_values_and_gradients_equal_torch(*, biased: bool) -> None:
    """Forward and all three gradients, for many rows and leading axes."""
    x = torch.randn(3, 40, 6, requires_grad=True)
    weight = torch.randn(5, 6, requires_grad=True)
    bias = torch.randn(5, requires_grad=True) if biased else None
    learning = [tensor for tensor in (x, weight, bias) if tensor is not None]

    found = linear(x, weight, bias, "onednn")
    assert "Onednn" in type(found.grad_fn).__name__
    back = torch.randn_like(found)
    gradients = torch.autograd.grad(found, learning, back)

    expected = F.linear(x, weight, bias)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    for gradient, wanted in zip(
        gradients, torch.autograd.grad(expected, learning, back), strict=True
    ):
        torch.testing.assert_close(gradient, wanted, rtol=1e-5, atol=1e-5)


@needs_onednn
def test_views_are_multiplied_too() -> None:
    """A transposed input, and an expanded gradient."""
    x = torch.randn(6, 90).t().requires_grad_()
    layer = LinearMap(6, 4)
    layer.product_kernel = "onednn"

    layer(x).sum().backward()

    assert x.grad is not None
    torch.testing.assert_close(x.grad, layer.weight.sum(0).expand(90, 6))
    torch.testing.assert_close(layer.weight.grad, x.detach().sum(0).expand(4, 6))


@needs_onednn
@pytest.mark.parametrize("sizes", [(0, 5, 6), (3, 0, 6), (3, 5, 0)])
def test_empty_matrices_have_a_product(sizes: tuple[int, int, int]) -> None:
    """A micro-batch of which no label counts has no rows; a sum of no terms is zero."""
    rows, outputs, inputs = sizes

    found = times_transposed(torch.ones(rows, inputs), torch.ones(outputs, inputs), "onednn")

    assert torch.equal(found, torch.full((rows, outputs), float(inputs)))


@needs_onednn
@pytest.mark.parametrize("rows", [2, 100])
def test_few_rows_autocast_and_meta_tensors_use_the_torch_kernel(rows: int) -> None:
    """Other cases use torch's kernel."""
    layer = LinearMap(6, 4)
    layer.product_kernel = "onednn"
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.randn(rows, 6)).dtype == torch.bfloat16
    assert layer.to("meta")(torch.randn(rows, 6, device="meta")).device.type == "meta"


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_maps_of_one_input_are_one_product_in_bfloat16(*, bias: bool) -> None:
    """Outputs and gradients are those of float32 maps, up to the rounding of bfloat16."""
    maps = [LinearMap(8, width, bias) for width in (8, 4, 12)]
    x = torch.randn(2, 150, 8, requires_grad=True)
    learning = [x, *(tensor for one in maps for tensor in one.parameters())]
    with torch.autocast("cpu", torch.bfloat16):
        found = linear_maps(x, *maps)
    expected = [one(x) for one in maps]
    backs = [torch.randn_like(y) for y in expected]

    first = found[0]._base
    assert first is not None
    assert all(y._base is first for y in found)
    for y, wanted in zip(found, expected, strict=True):
        assert y.dtype == torch.bfloat16
        torch.testing.assert_close(y.float(), wanted, rtol=2e-2, atol=2e-2)
    gradients = torch.autograd.grad([y.float() for y in found], learning, backs)
    for gradient, wanted in zip(
        gradients, torch.autograd.grad(expected, learning, backs), strict=True
    ):
        assert gradient.dtype == torch.float32
        error = (gradient - wanted).norm() / wanted.norm()
        assert error < 1e-2


@pytest.mark.needs("prepacking")
@pytest.mark.parametrize("rows", [1, 3])
@torch.no_grad()
def test_prepacked_maps_of_one_input_are_one_product(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where not all have a bias, and after their weights have changed; MKL joins none."""
    maps = [LinearMap(8, width, width > 4) for width in (8, 4, 12)]
    packed = [PackedLinear(8, layer.out_features, torch.float32) for layer in maps]
    for one, layer in zip(packed, maps, strict=True):
        for name, parameter in layer.named_parameters():
            one.register_parameter(name, parameter)
    x = torch.randn(rows, 8)
    for by_mkl in (False, True):
        monkeypatch.setattr(prepacked, "one_row_by_mkl", lambda _, by_mkl=by_mkl: by_mkl)
        for _ in range(2):
            found = linear_maps(x, *packed)
            for y, layer in zip(found, maps, strict=True):
                torch.testing.assert_close(y, layer(x))
                assert (y._base is found[0]._base is not None) == (rows > 1 or not by_mkl)
            for one, layer in zip(packed, maps, strict=True):
                layer.weight.neg_()
                one.repack()


@pytest.mark.parametrize("case", ["float32", "no gradients", "LoRA", "a bias", "few rows"])
def test_other_maps_of_one_input_are_applied_one_by_one(case: str) -> None:
    """Bit for bit as each map alone."""
    maps = [LinearMap(8, 8), LinearMap(8, 4, case != "a bias")]
    if case == "LoRA":
        with_lora(maps[1], "", rank=2, alpha=1.0)
    x = torch.randn(2 if case == "few rows" else 300, 8)

    with (
        torch.autocast("cpu", torch.bfloat16, enabled=case != "float32"),
        torch.set_grad_enabled(case != "no gradients"),
    ):
        found = linear_maps(x, *maps)
        expected = [one(x) for one in maps]

    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
    assert all(y._base is None or y._base is not found[0]._base for y in found[1:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_test_of_the_processor_draws_no_random_numbers(dtype: torch.dtype) -> None:
    """Otherwise the first model that decodes in a process would change a training."""
    before = torch.get_rng_state()

    can_pack.__wrapped__(dtype)

    assert torch.equal(torch.get_rng_state(), before)
