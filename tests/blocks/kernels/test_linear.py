"""Matrix products: another kernel gives the same values."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from weft.blocks.kernels import linear as product
from weft.blocks.kernels.linear import LinearMap, linear

needs_onednn = pytest.mark.skipif(not product.has_onednn(), reason="this torch has no oneDNN")


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
@pytest.mark.parametrize("rows", [2, 100])
def test_few_rows_autocast_and_meta_tensors_use_the_torch_kernel(rows: int) -> None:
    """Other cases use torch's kernel."""
    layer = LinearMap(6, 4)
    layer.product_kernel = "onednn"
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.randn(rows, 6)).dtype == torch.bfloat16
    assert layer.to("meta")(torch.randn(rows, 6, device="meta")).device.type == "meta"
