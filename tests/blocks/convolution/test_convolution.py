"""Convolution blocks against torch's convolutions and against sums by hand."""

from __future__ import annotations

from typing import Any

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

from ..single_node import findings_of, spec_of, type_of


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (2, 1), (3, 1), (4, 3), (5, 2), (3, 4)])
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


UNPADDED = [(1, 1, 2), (3, 1, 2), (2, 3, 1), (10, 1, 5), (4, 2, 3)]


@pytest.mark.parametrize(("kernel", "dilation", "stride"), UNPADDED)
@pytest.mark.parametrize("length", [12, 13, 14])
def test_without_padding_it_is_torchs(kernel: int, dilation: int, stride: int, length: int) -> None:
    """One output for every stride at which the kernel fits, also in a row with padding."""
    ours = Convolution(4, 6, kernel, dilation, stride=stride, padding=(0, 0))
    ours.initialize(torch.Generator().manual_seed(1))
    theirs = nn.Conv1d(4, 6, kernel, stride, dilation=dilation)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(3, length, 4)
    mask = torch.arange(length) < torch.tensor([[length], [length - 1], [length - 2]])

    y, shorter = ours(x, mask)

    for row in range(3):
        alone = theirs(x[row : row + 1, : length - row].transpose(1, 2)).transpose(1, 2)
        torch.testing.assert_close(y[row, : alone.size(1)], alone[0])
        assert shorter[row].tolist() == [t < alone.size(1) for t in range(y.size(1))]


@pytest.mark.parametrize(("kernel", "stride"), [(10, 5), (3, 2), (5, 3), (4, 2), (2, 1), (1, 2)])
@pytest.mark.parametrize("causal", [False, True])
def test_a_stride_takes_every_output_from_the_first_on(
    kernel: int, stride: int, *, causal: bool
) -> None:
    """A shorter row has as many outputs as alone, which read its padding as zeros."""
    every = Convolution(4, 6, kernel, causal=causal)
    every.initialize(torch.Generator().manual_seed(1))
    strided = Convolution(4, 6, kernel, causal=causal, stride=stride)
    strided.load_state_dict(every.state_dict())
    x, length = torch.randn(2, 4 * stride, 4), 4 * stride - 1
    mask = torch.arange(4 * stride) < torch.tensor([[4 * stride], [length]])

    torch.testing.assert_close(strided(x), every(x)[:, ::stride])
    if stride > 1:
        y, shorter = strided(x, mask)
        alone = strided(x[1:, :length])[0]
        torch.testing.assert_close(y[1, : len(alone)], alone)
        assert shorter.sum(1).tolist() == [4, len(alone)]


def test_an_even_kernel_reads_one_more_position_after_its_center() -> None:
    """y_t = w_0 x_{t-1} + w_1 x_t + w_2 x_{t+1} + w_3 x_{t+2}; torch's `padding="same"` too."""
    ours = Convolution(1, 1, 4, bias=False)
    with torch.no_grad():
        ours.weight.copy_(torch.tensor([[[1.0, 10.0, 100.0, 1000.0]]]))

    y = ours(torch.tensor([[[1.0], [2.0], [3.0]]]))

    assert y.flatten().tolist() == [3210.0, 321.0, 32.0]


def test_zeros_before_and_after_may_be_chosen() -> None:
    """Two before and one after move the center of the same kernel; one before shortens."""
    x = torch.tensor([[[1.0], [2.0], [3.0]]])
    for padding, expected in (((2, 1), [2100.0, 3210.0, 321.0]), ((1, 0), [3210.0])):
        ours = Convolution(1, 1, 4, bias=False, padding=padding)
        with torch.no_grad():
            ours.weight.copy_(torch.tensor([[[1.0, 10.0, 100.0, 1000.0]]]))

        assert ours(x).flatten().tolist() == expected


def test_a_sequence_that_the_kernel_does_not_fit_into_is_refused() -> None:
    """Its length is known only when the model runs."""
    with pytest.raises(ValueError, match="there are 4 positions, but the kernel needs 5"):
        Convolution(1, 1, 3, 2, padding=(0, 0))(torch.zeros(1, 4, 1))


def of(params: dict[str, Any], length: str) -> dict[str, Any]:
    """Return a spec of one convolution over a masked sequence."""
    inputs = {"x": f"f[B {length} 4]", "mask": f"mask[B {length}]"}
    return spec_of("convolution@1", inputs, d_out=6, **params)


@pytest.mark.parametrize(
    ("params", "length", "shorter"),
    [
        ({"kernel": 4}, "T", "T"),
        ({"kernel": 3, "padding": "valid"}, "T", "T-2"),
        ({"kernel": 10, "stride": 5, "padding": "valid"}, "320*T+80", "64*T+15"),
        ({"kernel": 3, "stride": 2, "padding": "valid"}, "64*T+15", "32*T+7"),
        ({"kernel": 3, "stride": 2, "padding": "valid"}, "2*T", "T-1"),
        ({"kernel": 3, "stride": 2}, "2*T+1", "T+1"),
        ({"kernel": 3, "stride": 2, "causal": True}, "2*T", "T"),
        ({"kernel": 8, "padding": [4, 3]}, "T", "T"),
        ({"kernel": 3, "padding": "valid"}, "7", "5"),
    ],
)
def test_the_length_of_the_output_is_typed(
    params: dict[str, Any], length: str, shorter: str
) -> None:
    """floor((length + zeros - (kernel - 1) * dilation - 1) / stride) + 1, as torch documents it."""
    assert type_of(of(params, length)) == f"f[B {shorter} 6]"


@pytest.mark.parametrize(
    ("params", "length", "problem"),
    [
        (
            {"kernel": 3, "stride": 2},
            "T",
            "T03: with a stride of 2, the length of T is not always a whole number",
        ),
        (
            {"kernel": 3, "dilation": 3, "padding": "valid"},
            "6",
            "T03: a kernel over 7 positions never fits into 6",
        ),
        (
            {"kernel": 3, "padding": [2, 1]},
            "T",
            "P02: padding adds 3 zeros, of which at most 2 are read",
        ),
        (
            {"kernel": 3, "stride": 3, "causal": True},
            "2*T",
            "T03: with a stride of 3, the length of 2*T is not always a whole number",
        ),
        ({"kernel": 3, "padding": "valid", "causal": True}, "T", "P08: param 'padding'"),
        ({"kernel": 1, "padding": "valid"}, "T", "P08: param 'padding'"),
    ],
)
def test_a_length_that_cannot_be_is_a_finding(
    params: dict[str, Any], length: str, problem: str
) -> None:
    """With both numbers."""
    code, _, text = problem.partition(": ")

    [finding] = findings_of(of(params, length))

    assert finding.code == code
    assert text in finding.problem


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
