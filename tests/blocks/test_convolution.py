"""Convolution against torch's own and against a sum by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from weft.blocks.modules.convolution import Convolution


@pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (3, 1), (5, 2), (3, 4)])
@pytest.mark.parametrize("causal", [False, True])
def test_it_is_torchs_with_the_padding_that_keeps_the_length(
    kernel: int, dilation: int, *, causal: bool
) -> None:
    """`padding='same'` when centred; all of it in front when causal."""
    ours = Convolution(4, 6, kernel, dilation, causal=causal)
    ours.initialize(torch.Generator().manual_seed(1))
    reach = (kernel - 1) * dilation
    theirs = nn.Conv1d(4, 6, kernel, dilation=dilation, padding=reach if causal else "same")
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 9, 4)

    wanted = theirs(x.transpose(1, 2))[..., :9].transpose(1, 2)

    torch.testing.assert_close(ours(x), wanted)


def test_causal_by_hand() -> None:
    """y_t = w_0 x_{t-2} + w_1 x_{t-1} + w_2 x_t + b, with zeros before the start."""
    ours = Convolution(1, 1, 3, causal=True)
    with torch.no_grad():
        ours.weight.copy_(torch.tensor([[[1.0, 10.0, 100.0]]]))
        assert ours.bias is not None
        ours.bias.fill_(0.5)

    y = ours(torch.tensor([[[1.0], [2.0], [3.0]]]))

    assert y.flatten().tolist() == [100.5, 210.5, 321.5]
