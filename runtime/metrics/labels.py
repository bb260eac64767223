"""Metrics of classes and tags: accuracy and F1.

A class is a text, a whole number or a truth value; a value of a column of tags is a list of
classes, or a text of classes with spaces, which are compared by position.  All values are
percentages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ...specs.findings import InputError
from ..data.columns.values import class_of, tags_of
from .metric import Measured, Metric, Statistics, SumMetric, converted, ratio, refuse_other_length


class Accuracy(SumMetric):
    """Percentage of examples whose class is predicted."""

    takes: ClassVar[tuple[str, ...]] = ("class",)

    type: Literal["accuracy"] = "accuracy"

    def statistics(self, predictions: Sequence[Any], references: Sequence[Any]) -> Statistics:
        """Return 1 or 0 for each example, and 1."""
        pairs = zip(_classes(predictions), _classes(references), strict=True)
        same = [predicted == other for predicted, other in pairs]
        return np.stack((np.array(same, np.float64), np.ones(len(same))), 1)

    def value_of(self, total: NDArray[np.float64]) -> float:
        """Return the percentage of right examples."""
        return 100 * ratio(*total)

    def details(self, total: NDArray[np.float64]) -> dict[str, Any]:
        """Return the counts."""
        return {"right": int(total[0]), "examples": int(total[1])}


class TagAccuracy(SumMetric):
    """Percentage of words whose tag is predicted."""

    takes: ClassVar[tuple[str, ...]] = ("tags",)

    type: Literal["tag_accuracy"] = "tag_accuracy"

    def statistics(self, predictions: Sequence[Any], references: Sequence[Any]) -> Statistics:
        """Return the right tags, the words and the completely right sequences of each example."""
        counts = np.zeros((len(references), 4))
        for row, (tags, right) in enumerate(tag_rows(predictions, references)):
            same = sum(tag == other for tag, other in zip(tags, right, strict=True))
            counts[row] = same, len(right), same == len(right), 1
        return counts

    def value_of(self, total: NDArray[np.float64]) -> float:
        """Return the percentage of right tags."""
        return 100 * ratio(total[0], total[1])

    def details(self, total: NDArray[np.float64]) -> dict[str, Any]:
        """Return the counts, and the percentage of completely right sequences."""
        sequences = 100 * ratio(total[2], total[3])
        return {"right": int(total[0]), "words": int(total[1]), "sequences": sequences}


def _classes(values: Sequence[Any]) -> list[str]:
    """Return the names of classes, as their column stores them."""
    return converted(values, class_of)


def tag_rows(
    predictions: Sequence[Any], references: Sequence[Any]
) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the predicted and the right tags of each example.

    Raises:
        InputError: a value is not a list, or an example has another number of tags.
    """
    columns = converted(predictions, tags_of), converted(references, tags_of)
    for number, (tags, right) in enumerate(zip(*columns, strict=True), 1):
        if len(tags) != len(right):
            raise InputError(
                f"row {number} has {len(tags)} predicted tags for {len(right)} words",
                help="predict one tag for each word, as the predictor 'tags' does",
            )
        yield tags, right


class F1(Metric):
    """F1 of classes or tags, in percent.

    The F1 of a class is 2 TP / (2 TP + FP + FN).  `macro` is its mean over all classes that occur
    in the references or the predictions; `micro` first adds the counts of all classes.
    """

    takes: ClassVar[tuple[str, ...]] = ("class", "tags")

    written: ClassVar[str] = "F1"

    type: Literal["f1"] = "f1"
    average: Literal["macro", "micro"] = "macro"
    """Mean of the F1 of each class, or F1 of the added counts."""
    ignore: tuple[str, ...] = ()
    """Classes that are not counted, such as `O`.  Without them, `micro` of classes is accuracy."""

    @property
    def name(self) -> str:
        """Name in reports: `f1` or `f1_micro`, and the column if it is given."""
        name = "f1" if self.average == "macro" else "f1_micro"
        return name if self.column is None else f"{name}:{self.column}"

    def measure(self, predictions: Sequence[Any], references: Sequence[Any]) -> Measured:
        """Compare classes, or tags by position."""
        refuse_other_length(predictions, references)
        right, predicted, expected = Counter[str](), Counter[str](), Counter[str]()
        if isinstance(references[0], list | tuple) or isinstance(predictions[0], list | tuple):
            pairs = [
                pair
                for tags, gold in tag_rows(predictions, references)
                for pair in zip(tags, gold, strict=True)
            ]
        else:
            pairs = list(zip(_classes(predictions), _classes(references), strict=True))
        for label, other in pairs:
            predicted[label] += 1
            expected[other] += 1
            right[label] += label == other
        classes = sorted((predicted.keys() | expected.keys()) - set(self.ignore))
        by_class = {
            name: {
                "precision": 100 * ratio(right[name], predicted[name]),
                "recall": 100 * ratio(right[name], expected[name]),
                "f1": 100 * ratio(2 * right[name], predicted[name] + expected[name]),
                "examples": expected[name],
            }
            for name in classes
        }
        if self.average == "macro":
            value = ratio(sum(scores["f1"] for scores in by_class.values()), len(by_class))
        else:
            total = sum(predicted[name] + expected[name] for name in classes)
            value = 100 * ratio(2 * sum(right[name] for name in classes), total)
        ignored = f"|ignore:{','.join(self.ignore)}" if self.ignore else ""
        signature = f"f1|average:{self.average}{ignored}"
        return Measured(value, signature, {"classes": by_class})
