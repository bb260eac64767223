"""Dropout: the fast mask is fair, exact in its scale and independent.

Counts of N draws with probability q must lie within 5 standard deviations sqrt(N q (1 - q)).
They do for the fixed seeds used here; for a fair mask, this fails once in two million.
"""

from __future__ import annotations

import math

import pytest
import torch
from weft.blocks.kernels.dropout import Dropout, mask

N = 80_000


def close(count: int, draws: int, probability: float) -> bool:
    """Return whether a count lies within 5 standard deviations of its mean."""
    deviation = math.sqrt(draws * probability * (1 - probability))
    return abs(count - draws * probability) <= 5 * deviation


@pytest.mark.parametrize("dropout", [0.1, 0.3, 0.5, 0.9])
def test_the_dropped_share_is_the_requested_probability(dropout: float) -> None:
    """Within the expected random deviation."""
    torch.manual_seed(1)

    found = mask(torch.empty(N), dropout)

    assert close(int((found == 0).sum()), N, dropout)


@pytest.mark.parametrize("dropout", [0.1, 0.25, 0.5])
def test_remaining_elements_are_scaled_to_keep_the_mean(dropout: float) -> None:
    """Probabilities are multiples of 1/65536; the scale matches the rounded probability."""
    found = mask(torch.empty(1000), dropout)

    rounded = round(dropout * 65536) / 65536
    scale = torch.tensor(1 / (1 - rounded))
    assert found.unique().tolist() == [0.0, scale.item()]
    assert scale.item() == pytest.approx(1 / (1 - dropout), rel=2e-5)


def test_the_mean_is_kept() -> None:
    """The sum over many elements equals the sum without dropout, within random deviation."""
    torch.manual_seed(2)
    block = Dropout(0.3).train()

    found = block(torch.ones(N)).mean().item()

    # Each element is 0 or 1 / 0.7, so its variance is 0.3 / 0.7.
    assert found == pytest.approx(1.0, abs=5 * math.sqrt(0.3 / 0.7 / N))


def test_the_four_elements_of_one_draw_are_fair_and_independent() -> None:
    """One 64-bit number decides four elements; each is fair, and pairs are independent."""
    torch.manual_seed(3)
    dropped = (mask(torch.empty(N), 0.3) == 0).view(-1, 4)
    draws = N // 4

    for lane in range(4):
        assert close(int(dropped[:, lane].sum()), draws, 0.3)
        for other in range(lane):
            both = dropped[:, lane] & dropped[:, other]
            assert close(int(both.sum()), draws, 0.09)


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 5, 8])
def test_neighbours_are_independent(lag: int) -> None:
    """For any distance between two elements, both are dropped in p^2 of the cases."""
    torch.manual_seed(4)
    dropped = mask(torch.empty(N), 0.5) == 0

    both = int((dropped[lag:] & dropped[:-lag]).sum())

    assert close(both, N - lag, 0.25)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 5), (0, 4)])
def test_any_shape_and_kind_is_taken(shape: tuple[int, ...]) -> None:
    """Sizes that are not a multiple of four, and an empty tensor."""
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        found = Dropout(0.5).train()(torch.ones(shape, dtype=dtype))

        assert found.shape == shape
        assert found.dtype == dtype
        assert set(found.flatten().tolist()) <= {0.0, 2.0}


def test_a_transposed_input_is_masked_in_place() -> None:
    """Each element keeps its position and value, or is zero."""
    x = torch.arange(1.0, 13.0).view(3, 4).T

    found = Dropout(0.5).train()(x)

    assert ((found == 0) | (found == 2 * x)).all()


def test_the_gradient_is_the_scaled_dropout_mask() -> None:
    """The gradient is zero for dropped elements and scaled for the others."""
    x = torch.ones(100, requires_grad=True)

    found = Dropout(0.5).train()(x)
    found.sum().backward()

    assert torch.equal(x.grad, found.detach())


def test_evaluation_and_probability_zero_return_the_input_itself() -> None:
    """No copy, and no random number is drawn."""
    x = torch.ones(5)
    before = torch.get_rng_state()

    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x
    assert torch.equal(before, torch.get_rng_state())


def test_the_smallest_and_largest_probabilities_stay_finite() -> None:
    """A probability rounded to 0 drops nothing; one rounded to 1 causes no division by zero."""
    assert (mask(torch.empty(100), 1e-9) == 1).all()
    assert mask(torch.empty(100), 1 - 1e-9).isfinite().all()
