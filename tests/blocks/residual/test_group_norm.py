"""Group norm against torch's, with padding and without."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from weft.blocks.residual.group_norm_module import GroupNorm

from ..single_node import findings_of, spec_of

INPUTS = {"x": "f[B T 6]", "mask": "mask[B T]"}


def drawn(groups: int) -> tuple[GroupNorm, nn.GroupNorm]:
    """Return a block of width 6, and torch's with the same random weights."""
    ours, theirs = GroupNorm(6, groups, 1e-5), nn.GroupNorm(groups, 6, 1e-5)
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.copy_(torch.randn(6))
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


@pytest.mark.parametrize("groups", [1, 3, 6])
def test_it_is_torchs(groups: int) -> None:
    """Over all positions and the features of a group, with and without a mask that is all true."""
    ours, theirs = drawn(groups)
    x = 3 * torch.randn(2, 7, 6) + 1

    expected = theirs(x.transpose(1, 2)).transpose(1, 2)

    torch.testing.assert_close(ours(x), expected)
    torch.testing.assert_close(ours(x, torch.ones(2, 7, dtype=torch.bool)), expected)


@pytest.mark.parametrize("groups", [2, 6])
def test_padding_does_not_count(groups: int) -> None:
    """A row has the result that it has alone; a row of padding is finite."""
    ours, theirs = drawn(groups)
    x = 3 * torch.randn(3, 7, 6) + 1
    mask = torch.arange(7) < torch.tensor([[7], [4], [0]])

    y = ours(x, mask)

    torch.testing.assert_close(y[1:2, :4], theirs(x[1:2, :4].transpose(1, 2)).transpose(1, 2))
    assert y.isfinite().all()


def test_groups_must_divide_the_width() -> None:
    """With both numbers."""
    [finding] = findings_of(spec_of("group_norm@1", INPUTS, groups=4))

    assert finding.problem.endswith("the width is 6, which 4 groups do not divide")


def test_it_cannot_decode() -> None:
    """Its statistics are those of all positions."""
    [finding] = findings_of(spec_of("group_norm@1", INPUTS, step_axis="T", groups=3))

    assert finding.code == "D01"
