"""CTC against the sum over all alignments, and its weight."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor
from weft.blocks.losses.ctc import CTC as CTC_BLOCK
from weft.blocks.losses.ctc import CTCParams
from weft.blocks.losses.ctc_module import CTC


def by_alignment(p: Tensor, labels: list[int], blank: int) -> float:
    """Return -log of the summed probability of all paths that collapse to the labels."""
    total = 0.0
    for path in itertools.product(range(p.size(1)), repeat=len(p)):
        collapsed = [one for one, _ in itertools.groupby(path) if one != blank]
        if collapsed == labels:
            total += math.prod(p[t, one].item() for t, one in enumerate(path))
    return -math.log(total)


@pytest.mark.parametrize("blank", [0, 3])
def test_it_sums_over_all_alignments(blank: int) -> None:
    """Section 3 of the paper, path by path, with padding of frames and labels."""
    logits = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([[1, 1, 2], [2, -1, 1]])
    mask = torch.tensor([[True] * 5, [True] * 4 + [False]])
    labels_mask = torch.tensor([[True, True, True], [True, True, True]])
    loss = CTC(blank)

    found, nll = loss(logits, labels, mask, labels_mask)

    p = logits.softmax(-1)
    wanted = by_alignment(p[0], [1, 1, 2], blank) + by_alignment(p[1, :4], [2, 1], blank)
    assert found.item() == pytest.approx(wanted, rel=1e-5)
    assert nll.item() == found.item()
    assert loss.weight(labels, labels_mask).item() == 5
    assert CTC(blank, per="sentences").weight(labels).item() == 2


def test_the_mask_excludes_labels_in_any_position() -> None:
    """Such as an end token or padding; the others keep their order."""
    logits = torch.randn(1, 6, 5)
    masked = torch.tensor([[4, 2, 1, 3]]), torch.tensor([[False, True, False, True]])
    loss = CTC()

    found, _ = loss(logits, masked[0], labels_mask=masked[1])

    torch.testing.assert_close(found, loss(logits, torch.tensor([[2, 3]]))[0])
    assert loss.weight(*masked).item() == 2


def test_too_few_frames_count_as_zero_if_wanted() -> None:
    """Two equal labels need three frames, with a blank between them."""
    logits = torch.randn(1, 2, 4, requires_grad=True)
    labels = torch.tensor([[1, 1]])

    found, _ = CTC()(logits, labels)

    assert found.item() == 0.0
    assert torch.autograd.grad(found, logits)[0].abs().sum() == 0.0
    assert CTC(zero_infinity=False)(logits, labels)[0].item() == math.inf


def test_a_blank_outside_the_classes_is_refused() -> None:
    """With the number of classes."""
    with pytest.raises(ValueError, match="blank is 11, but there are only 11 classes"):
        CTC_BLOCK.arguments(CTCParams(blank=11), {"v": 11})
