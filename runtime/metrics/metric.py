"""Contract of a metric: settings, whether a higher value is better, and how to measure.

A metric is a class whose fields are its settings in a run file.  It compares predictions with the
values of a column, or derives a value from the reported losses.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...specs.findings import InputError, did_you_mean
from ..data.columns.values import number_of
from ..system.plugins import Named

_Value = TypeVar("_Value")
Statistics = NDArray[np.float64]
"""One row of sums for each example, [N, K]; the value of a metric is a function of their total."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The value of a metric."""

    value: float
    signature: str = ""
    """How it was computed, for a publication: settings and versions."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Further figures by name, as JSON data."""


class Metric(Named):
    """Base class of metrics that compare predictions with references."""

    short: ClassVar[str] = "column"
    higher_is_better: ClassVar[bool] = True
    needs: ClassVar[Literal["predictions", "losses"]] = "predictions"
    """Whether it takes predictions and references, or only the mean losses of the validation."""
    takes: ClassVar[tuple[str, ...]] = ()
    """Types of the columns whose values it compares, such as `text`; empty for any type."""
    reads: ClassVar[tuple[str, ...]] = ()
    """Settings that name further columns that it reads, such as that of the source."""

    written: ClassVar[str] = ""
    """Its name in publications, such as `BLEU`; empty: its type."""

    column: str | None = None
    """Column that contains the references; `null` is the column that the predictor answers in."""

    @property
    def name(self) -> str:
        """Name in reports: the type, and the column if it is given."""
        return self.type if self.column is None else f"{self.type}:{self.column}"

    def references(self, rows: Sequence[Mapping[str, Any]], answers: str) -> list[Any]:
        """Return what the predictions of rows are compared with.

        Args:
            rows: raw values by column.
            answers: the column that was predicted.

        Raises:
            InputError: a row lacks a value.
        """
        return column_of(rows, self.column or answers)

    @property
    def label(self) -> str:
        """Name in publications, and the column or output if it is given."""
        words = self.written or self.type.replace("_", " ")
        _, _, part = self.name.partition(":")
        return f"{words} ({part})" if part else words

    def reaches(self, value: float, target: float) -> bool:
        """Return whether a value is as good as a target, or better."""
        return value >= target if self.higher_is_better else value <= target

    @abstractmethod
    def measure(self, predictions: Sequence[Any], references: Sequence[Any]) -> Measured:
        """Compare predictions with references.

        Args:
            predictions: one answer of the predictor for each example.
            references: what `references` returns for the same examples.

        Raises:
            InputError: a value has the wrong type.
        """


class LossMetric(Metric):
    """Base class of metrics of the losses and scores that an objective reports."""

    short: ClassVar[str] = "output"
    higher_is_better: ClassVar[bool] = False
    needs: ClassVar[Literal["predictions", "losses"]] = "losses"

    column: None = None
    """Not used: there are no references."""
    output: str | None = None
    """Output of the objective."""

    @property
    def name(self) -> str:
        """Name in reports: the type, and the output if it is given."""
        return self.type if self.output is None else f"{self.type}:{self.output}"

    def measure(self, predictions: Sequence[Any], references: Sequence[Any]) -> Measured:
        """Raise an error: this metric has no predictions."""
        del predictions, references
        msg = f"'{self.type}' is computed from losses"
        raise TypeError(msg)

    @abstractmethod
    def measure_losses(self, losses: Mapping[str, float]) -> Measured:
        """Return the value for the mean losses and scores of a validation, by output.

        Raises:
            InputError: the objective does not report the output.
        """


class SumMetric(Metric):
    """Base class of metrics whose value is a function of sums over examples.

    The sums allow a confidence interval by resampling examples; see `bootstrap.py`.
    """

    @abstractmethod
    def statistics(self, predictions: Sequence[Any], references: Sequence[Any]) -> Statistics:
        """Return the sums of each example, [N, K].

        Raises:
            InputError: a value has the wrong type.
        """

    @abstractmethod
    def value_of(self, total: NDArray[np.float64]) -> float:
        """Return the value for the total of the sums, [K]."""

    def values(self, predictions: Sequence[Any], references: Sequence[Any]) -> NDArray[np.float64]:
        """Return the value of each example alone, [N].

        Raises:
            InputError: a value has the wrong type.
        """
        sums = self.statistics(predictions, references)
        return np.array([self.value_of(row) for row in sums], np.float64)

    def signature(self) -> str:
        """Return how the value is computed."""
        return self.type

    def details(self, total: NDArray[np.float64]) -> dict[str, Any]:
        """Return further figures by name."""
        del total
        return {}

    def measure(self, predictions: Sequence[Any], references: Sequence[Any]) -> Measured:
        """Compare predictions with references."""
        refuse_other_length(predictions, references)
        total = self.statistics(predictions, references).sum(0)
        return Measured(self.value_of(total), self.signature(), self.details(total))


def column_of(rows: Sequence[Mapping[str, Any]], column: str) -> list[Any]:
    """Return the values of a column.

    Raises:
        InputError: a row lacks it.
    """
    for number, row in enumerate(rows, 1):
        if column not in row:
            raise InputError(
                f"the row has no value for the column '{column}'",
                location=f"row {number}",
                help=did_you_mean(column, row),
            )
    return [row[column] for row in rows]


def refuse_other_length(predictions: Sequence[Any], references: Sequence[Any]) -> None:
    """Raise if there is not one prediction for each reference.

    Raises:
        InputError: the numbers differ, or there are none.
    """
    if len(predictions) != len(references):
        raise InputError(
            f"{len(predictions)} predictions for {len(references)} references",
            help="predict the same rows whose references are compared",
        )
    if not references:
        raise InputError("there is nothing to measure", help="give at least one row")


def converted(values: Sequence[Any], convert: Callable[[Any, str], _Value]) -> list[_Value]:
    """Return values as their column stores them.

    Args:
        values: predictions or references.
        convert: takes a value and a name for messages.

    Raises:
        InputError: a value has the wrong type.
    """
    converted_values = []
    for number, value in enumerate(values, 1):
        try:
            converted_values.append(convert(value, f"row {number}"))
        except InputError as error:
            help_ = "select a metric and a predictor that fit the type of the column"
            raise InputError(error.problem, help=help_) from error
    return converted_values


def any_number(value: Any, name: str) -> float:
    """Return a number; a float may be infinite or NaN, as are answers of a model that diverged.

    Raises:
        InputError: it is not a number.
    """
    return value if isinstance(value, float) else number_of(value, name)


def ratio(part: float, total: float) -> float:
    """Return part / whole; 0 if `total` is 0."""
    return float(part / total) if total else 0.0
