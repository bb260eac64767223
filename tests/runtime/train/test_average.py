"""Tests of checkpoint averaging."""

from __future__ import annotations

import pytest
import torch
from weft.runtime.checkpoint.average import average_weights
from weft.specs.findings import InputError


def test_the_mean_of_each_weight() -> None:
    """Compare with means computed by hand."""
    weights = [{"w": torch.tensor([x, 2.0 * x]), "b": torch.tensor(-x)} for x in (1.0, 2.0, 6.0)]

    mean = average_weights(weights)

    assert torch.equal(mean["w"], torch.tensor([3.0, 6.0]))
    assert torch.equal(mean["b"], torch.tensor(-3.0))


def test_bfloat16_weights_are_not_added_in_bfloat16() -> None:
    """Adding 1 + 2^-7 three times and 1 once in low precision would lose the small parts."""
    low, high = torch.tensor([1.0]).bfloat16(), torch.tensor([1.0 + 2**-7]).bfloat16()

    mean = average_weights([{"w": high}] * 3 + [{"w": low}])

    assert mean["w"].dtype == torch.bfloat16
    assert torch.equal(mean["w"], high)


def test_the_mean_is_rounded_once() -> None:
    """Summing in float32 would lose the small weights next to the large ones."""
    weights = [{"w": torch.tensor([x])} for x in (2.0**25, 1.0, 1.0, -(2.0**25))]

    assert torch.equal(average_weights(weights)["w"], torch.tensor([0.5]))


def test_counters_come_from_the_newest_checkpoint() -> None:
    """The mean of integers is not an integer, so the last checkpoint's value is used."""
    weights = [{"n": torch.tensor(3)}, {"n": torch.tensor(8)}]

    assert average_weights(weights)["n"].item() == 8


def test_the_inputs_are_not_changed() -> None:
    """The mean shares no memory with the inputs, also in float64, where no conversion is needed."""
    for dtype in (torch.float32, torch.float64):
        old, new = {"w": torch.ones(2, dtype=dtype)}, {"w": torch.zeros(2, dtype=dtype)}

        average_weights([old, new])["w"].fill_(5.0)
        average_weights([old])["w"].fill_(5.0)

        assert torch.equal(old["w"], torch.ones(2, dtype=dtype))
        assert torch.equal(new["w"], torch.zeros(2, dtype=dtype))


def test_a_missing_weight_is_named() -> None:
    """Checkpoints of two models are an error, whichever has more weights."""
    small, large = {"a": torch.ones(1)}, {"a": torch.ones(1), "b.c": torch.ones(1)}

    with pytest.raises(InputError, match=r"'b\.c' is in checkpoint 2 but not in checkpoint 1"):
        average_weights([small, large])
    with pytest.raises(InputError, match=r"'b\.c' is in checkpoint 1 but not in checkpoint 3"):
        average_weights([large, large, small])


@pytest.mark.parametrize("other", [torch.ones(3, 2), torch.ones(2, 3).half()])
def test_a_weight_of_another_shape_or_kind_is_named(other: torch.Tensor) -> None:
    """Different shapes are an error; broadcasting would average them silently."""
    with pytest.raises(InputError, match=r"'w' is float32\[2, 3\] in checkpoint 1 but float"):
        average_weights([{"w": torch.ones(2, 3)}, {"w": other}])


def test_no_checkpoints_have_no_mean() -> None:
    """An empty list is an error, not a division by zero."""
    with pytest.raises(InputError, match="no weights"):
        average_weights([])
