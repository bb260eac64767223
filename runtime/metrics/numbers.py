"""Metrics of numbers: mean squared and mean absolute error."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from .metric import Statistics, SumMetric, any_number, converted, ratio


class _Error(SumMetric):
    """Base class of mean errors."""

    takes: ClassVar[tuple[str, ...]] = ("number",)
    higher_is_better: ClassVar[bool] = False

    @abstractmethod
    def error(self, difference: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the error of each difference."""

    def statistics(self, predictions: Sequence[Any], references: Sequence[Any]) -> Statistics:
        """Return the error of each example, and 1."""
        predicted, other = (converted(values, any_number) for values in (predictions, references))
        difference = np.array(predicted, np.float64) - np.array(other, np.float64)
        return np.stack((self.error(difference), np.ones(len(difference))), 1)

    def value_of(self, total: NDArray[np.float64]) -> float:
        """Return the mean error."""
        return ratio(*total)


class MeanSquaredError(_Error):
    """Mean squared difference."""

    written: ClassVar[str] = "MSE"

    type: Literal["mse"] = "mse"

    def error(self, difference: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the square of each difference."""
        return difference**2


class MeanAbsoluteError(_Error):
    """Mean absolute difference."""

    written: ClassVar[str] = "MAE"

    type: Literal["mae"] = "mae"

    def error(self, difference: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the size of each difference."""
        return np.abs(difference)
