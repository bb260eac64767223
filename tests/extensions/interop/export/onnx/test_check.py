"""The comparison of an export with its model."""

from __future__ import annotations

import math

import pytest
import torch
from weft.extensions.interop.export.onnx import difference


@pytest.mark.parametrize(
    ("expected", "found", "wanted"),
    [
        ([1.0, math.nan], [1.0, math.nan], 0.0),
        ([1.0, 2.0], [1.0, math.nan], math.inf),
        ([1.0, math.nan], [1.0, 2.0], math.inf),
        ([-math.inf, 4.0], [-math.inf, 2.0], 0.5),
        ([-math.inf], [math.inf], math.inf),
        ([8.0, 2.0], [8.0, 4.0], 0.25),
    ],
)
def test_values_that_are_not_finite_are_compared(
    expected: list[float], found: list[float], wanted: float
) -> None:
    """A NaN in one of the two would vanish in the maximum over several shapes."""
    assert difference(torch.tensor(expected), torch.tensor(found)) == wanted
