"""Forms for ONNX compute what the modules compute that they stand in for."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from weft.blocks.feed_forward.mixture_of_experts_module import MixtureOfExperts
from weft.blocks.pooling.span_module import SpanScore
from weft.blocks.recurrent.recurrent_module import LSTM
from weft.runtime.export.onnx.forms import onnx_forms


def scattered(module: nn.Module) -> nn.Module:
    """Give a module weights at random, no bias zero, in double precision."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in module.double().parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    return module.eval()


@pytest.mark.parametrize(
    "module",
    [
        MixtureOfExperts(6, 5, 7, top_k=2),
        MixtureOfExperts(6, 3, 7, top_k=1, bias=False, activation="gelu"),
        SpanScore(6, 5, 4),
    ],
    ids=["experts", "switch", "spans"],
)
def test_the_form_computes_what_the_module_computes(module: nn.Module) -> None:
    """To the last digits but few, where some positions are not kept."""
    scattered(module)
    x = torch.randn(3, 5, 6, dtype=torch.double)
    mask = torch.arange(5) < torch.tensor([[5], [2], [4]])

    with torch.no_grad():
        expected = module(x, mask)
        with onnx_forms(module):
            hidden = {*vars(module)}
            found = module(x, mask)

    first, other = (one if isinstance(one, tuple) else (one,) for one in (expected, found))
    for ours, theirs in zip(first, other, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    assert hidden - {*vars(module)}


def test_modules_are_as_before_also_after_an_error() -> None:
    """What hides a method is taken away."""
    module = nn.Sequential(LSTM(4, 3), nn.Linear(3, 3))
    names = {*vars(module[0])}

    with pytest.raises(RuntimeError, match="fault"), onnx_forms(module):
        raise RuntimeError("fault")

    assert {*vars(module[0])} == names
