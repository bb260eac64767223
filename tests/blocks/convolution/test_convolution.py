"""Convolution blocks against torch's convolutions and against sums by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from weft.blocks.convolution.convolution import CONVOLUTION, GroupedParams
from weft.blocks.convolution.convolution_module import (
    Convolution,
    DepthwiseConvolution,
    GatedConvolution,
    SeparableConvolution,
)


@pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (3, 1), (5, 2), (3, 4)])
@pytest.mark.parametrize("causal", [False, True])
def test_it_is_torchs_with_the_padding_that_keeps_the_length(
    kernel: int, dilation: int, *, causal: bool
) -> None:
    """`padding='same'` when centered; all padding in front when causal."""
    ours = Convolution(4, 6, kernel, dilation, causal=causal)
    ours.initialize(torch.Generator().manual_seed(1))
    reach = (kernel - 1) * dilation
    theirs = nn.Conv1d(4, 6, kernel, dilation=dilation, padding=reach if causal else "same")
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 9, 4)

    wanted = theirs(x.transpose(1, 2))[..., :9].transpose(1, 2)

    torch.testing.assert_close(ours(x), wanted)


@pytest.mark.parametrize("groups", [2, 4])
def test_groups_are_torchs(groups: int) -> None:
    """Each group of outputs reads the inputs of its group."""
    ours = Convolution(8, 12, 3, groups=groups)
    ours.initialize(torch.Generator().manual_seed(1))
    theirs = nn.Conv1d(8, 12, 3, groups=groups, padding="same")
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 9, 8)

    torch.testing.assert_close(ours(x), theirs(x.transpose(1, 2)).transpose(1, 2))


def test_groups_that_do_not_divide_a_width_are_refused() -> None:
    """With both numbers."""
    params = GroupedParams(d_out=6, kernel=3, groups=4)

    with pytest.raises(ValueError, match="d_out is 6, which 4 groups do not divide"):
        CONVOLUTION.arguments(params, {"d_in": 8})


def test_causal_by_hand() -> None:
    """y_t = w_0 x_{t-2} + w_1 x_{t-1} + w_2 x_t + b, with zeros before the start."""
    ours = Convolution(1, 1, 3, causal=True)
    with torch.no_grad():
        ours.weight.copy_(torch.tensor([[[1.0, 10.0, 100.0]]]))
        assert ours.bias is not None
        ours.bias.fill_(0.5)

    y = ours(torch.tensor([[[1.0], [2.0], [3.0]]]))

    assert y.flatten().tolist() == [100.5, 210.5, 321.5]


@pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (3, 1), (5, 2)])
@pytest.mark.parametrize("causal", [False, True])
def test_depthwise_is_torchs_convolution_in_groups_of_one(
    kernel: int, dilation: int, *, causal: bool
) -> None:
    """Each channel has its own kernel; the weights have torch's names and shapes."""
    ours = DepthwiseConvolution(4, kernel, dilation, causal=causal)
    ours.initialize(torch.Generator().manual_seed(1))
    padding = (kernel - 1) * dilation if causal else "same"
    theirs = nn.Conv1d(4, 4, kernel, dilation=dilation, groups=4, padding=padding)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 9, 4)

    wanted = theirs(x.transpose(1, 2))[..., :9].transpose(1, 2)

    torch.testing.assert_close(ours(x), wanted)


@pytest.mark.parametrize(("kernel", "dilation"), [(3, 1), (5, 2)])
@pytest.mark.parametrize("causal", [False, True])
def test_separable_is_torchs_convolution_in_groups_of_one_and_a_linear_map(
    kernel: int, dilation: int, *, causal: bool
) -> None:
    """Each channel has its own kernel; only the pointwise map has a bias."""
    ours = SeparableConvolution(4, 6, kernel, dilation, causal=causal)
    ours.initialize(torch.Generator().manual_seed(1))
    reach = (kernel - 1) * dilation
    theirs = nn.Conv1d(
        4,
        4,
        kernel,
        dilation=dilation,
        groups=4,
        bias=False,
        padding=reach if causal else "same",
    )
    theirs.weight = ours.depthwise
    x = torch.randn(2, 9, 4)

    between = theirs(x.transpose(1, 2))[..., :9].transpose(1, 2)
    wanted = between @ ours.pointwise.weight.T + ours.pointwise.bias

    torch.testing.assert_close(ours(x), wanted)


@pytest.mark.parametrize("causal", [False, True])
def test_gated_is_torchs_convolution_and_glu(*, causal: bool) -> None:
    """The first half of the channels holds the values, the second half the gates."""
    ours = GatedConvolution(4, 6, 3, causal=causal)
    ours.initialize(torch.Generator().manual_seed(1))
    theirs = nn.Conv1d(4, 12, 3, padding=2 if causal else "same")
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 9, 4)

    wanted = nn.GLU(1)(theirs(x.transpose(1, 2))[..., :9]).transpose(1, 2)

    torch.testing.assert_close(ours(x), wanted)


@pytest.mark.parametrize("block", [Convolution, SeparableConvolution, GatedConvolution])
def test_padding_acts_as_the_end_of_the_sequence(
    block: type[Convolution | SeparableConvolution | GatedConvolution],
) -> None:
    """Padding at either end does not change an unmasked output."""
    ours = block(4, 6, 5)
    ours.initialize(torch.Generator().manual_seed(1))
    x = torch.randn(2, 9, 4)
    mask = torch.zeros(2, 9, dtype=torch.bool)
    mask[:, 2:7] = True

    torch.testing.assert_close(ours(x, mask)[:, 2:7], ours(x[:, 2:7]))


def test_fresh_gated_weights_keep_the_variance() -> None:
    """Gehring et al. 2017, section 3.5: inputs of variance 1 give outputs of variance near 1."""
    ours = GatedConvolution(256, 256, 3)
    ours.initialize(torch.Generator().manual_seed(1))
    x = torch.randn(4, 64, 256, generator=torch.Generator().manual_seed(2))

    assert 0.7 < ours(x)[:, 1:-1].var().item() < 1.4
