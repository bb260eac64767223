"""Losses and scores as text: three digits of any magnitude."""

from __future__ import annotations

import pytest
from weft.runtime.cli.common.terminal import Reporter
from weft.runtime.metrics.digits import aligned, significant


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (6.2146, "6.21"),
        (0.0123456, "0.0123"),
        (0.000412, "0.000412"),
        (45.678, "45.7"),
        (999.96, "1,000"),
        (12345.6, "12,346"),
        (2.0, "2.00"),
        (0.0, "0.00"),
        (-0.5, "-0.500"),
        (float("nan"), "nan"),
    ],
)
def test_a_loss_has_three_significant_digits(value: float, text: str) -> None:
    """Three decimals would show 0.000 for a small mean squared error."""
    assert significant(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(31.42, "+31.4200"), (0.00001234, "+1.23e-05"), (-0.001, "-0.00100"), (0.0, "+0.0000")],
)
def test_a_column_has_more_decimals_for_small_values(value: float, text: str) -> None:
    """A score of 1.23e-05 is not 0.0000, and a difference keeps its sign."""
    assert aligned(value, 4, sign=True) == text


def test_a_validation_prints_small_losses(capsys: pytest.CaptureFixture[str]) -> None:
    """BLEU keeps its two decimals, as published scores have."""
    Reporter().validated(20, {"loss": 0.00041236, "bleu": 0.5})

    out = capsys.readouterr()
    assert "update 20: valid loss 0.000412  BLEU 0.50" in out.out + out.err
