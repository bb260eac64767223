"""Predictors of one forward pass: a class, a tag for each word, or a number.

Axes: B rows, T positions, K classes or tags.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ....specs.findings import InputError
from .predictor import (
    Answer,
    Context,
    Predictor,
    PredictorSettings,
    PreparedText,
    Reads,
    Row,
    evaluating,
    values,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .feeding import Feeding
    from .forward import Passed


class Argmax(PredictorSettings):
    """The most probable class."""

    reads: ClassVar[Reads] = "all"
    outputs: ClassVar[tuple[str, ...]] = ("output",)

    type: Literal["argmax"] = "argmax"
    output: str = "logits"
    """Output of the model with a score for each class, [B classes]."""

    def make(self, context: Context) -> Predictor:
        """Return the predictor."""
        from .feeding import Feeding

        return _Classes(context, Feeding.of(context), self.output, self.type)


class Tags(PredictorSettings):
    """The most probable tag of each word.

    The tag of a word is that of its first piece.
    """

    reads: ClassVar[Reads] = "all"
    outputs: ClassVar[tuple[str, ...]] = ("output",)

    type: Literal["tags"] = "tags"
    output: str = "logits"
    """Output of the model with a score for each tag at each position, [B T tags]."""
    words: str | None = None
    """Column with the words; `null` is the only column that the model reads."""

    def make(self, context: Context) -> Predictor:
        """Return the predictor."""
        from ...data.words import word_starts
        from .feeding import Feeding

        feeding = Feeding.of(context)
        read = feeding.columns
        if self.words is None and len(read) != 1:
            raise InputError(
                f"the model reads {len(read)} columns: {', '.join(read)}",
                help="set 'words' to the column with the words",
            )
        column = self.words or read[0]
        if column not in read:
            raise InputError(
                f"the model does not read the column '{column}'",
                help=f"set 'words' to one of {', '.join(read)}",
            )
        starts = word_starts(context.vocabulary(column))
        return _Tags(context, feeding, self.output, self.type, column, starts)


class Regression(PredictorSettings):
    """A number."""

    reads: ClassVar[Reads] = "all"
    outputs: ClassVar[tuple[str, ...]] = ("output",)

    type: Literal["regression"] = "regression"
    output: str = "value"
    """Output of the model with the number, [B] or [B 1]."""

    def make(self, context: Context) -> Predictor:
        """Return the predictor."""
        from .feeding import Feeding

        return _Numbers(context, Feeding.of(context), self.output, self.type)


@dataclass(frozen=True, slots=True)
class _OnePass:
    """Base class of predictors that run the models once."""

    context: Context
    feeding: Feeding
    output: str
    type: str

    def __post_init__(self) -> None:
        """Check that the model has the output."""
        from .forward import check_output

        check_output(self.context, self.output, self.type)

    def predict(self, rows: Sequence[Row]) -> list[Any]:
        """Return the answer for each row."""
        return [answer.value for answer in self.answers(rows)]

    def answers(self, rows: Sequence[Row]) -> list[Answer]:
        """Return the answer for each row with its score."""
        from .forward import passes

        results: list[Answer] = [Answer(None)] * len(rows)
        with evaluating(self.context.models):
            for passed in passes(self.context, self.feeding, rows):
                for at, answer in zip(passed.rows, self.read(passed, rows), strict=True):
                    results[at] = answer
        return results

    def read(self, passed: Passed, rows: Sequence[Row]) -> list[Answer]:
        """Return the answers of a batch."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class _Classes(_OnePass):
    """Predicts a class."""

    def read(self, passed: Passed, rows: Sequence[Row]) -> list[Answer]:
        """Return the class of each row of a batch, with the probability of every class."""
        del rows
        probable_BK = passed.probabilities(self.output)
        refuse_axes(probable_BK.ndim, 2, self.output)
        decode = self.context.column(self.context.answers).decode
        answers = []
        for probabilities in probable_BK.tolist():
            best = max(range(len(probabilities)), key=probabilities.__getitem__)
            by_name = {str(decode(index)): value for index, value in enumerate(probabilities)}
            answers.append(Answer(decode(best), probabilities[best], by_name))
        return answers


@dataclass(frozen=True, slots=True)
class _Tags(_OnePass):
    """Predicts a tag for each word."""

    words: str
    """Column with the words."""
    starts: NDArray[np.bool_]
    """Which ids begin a word, (vocabulary,), as the column of tags places its labels."""

    def read(self, passed: Passed, rows: Sequence[Row]) -> list[Answer]:
        """Return the tags of each row of a batch; the score is the mean log probability."""
        log_BTK = passed.probabilities(self.output).log()
        refuse_axes(log_BTK.ndim, 3, self.output)
        best_BT, tag_BT = (values_BT.tolist() for values_BT in log_BTK.max(-1))
        column = self.context.column(self.context.answers)
        starts_BT = self.starts[passed.tensors[self.words].numpy()]
        answers = []
        for row, at in enumerate(passed.rows):
            first = starts_BT[row].nonzero()[0].tolist()
            self._refuse_other_words(values(rows[at], self.words, at), at, first, log_BTK.size(1))
            score = sum(best_BT[row][position] for position in first) / max(1, len(first))
            ids = [tag_BT[row][position] for position in first]
            # The text of ids may have fewer words, because it leaves out special tokens.
            tags = (
                column.vocabulary.pieces(ids)
                if isinstance(column, PreparedText)
                else column.decode(ids)
            )
            answers.append(Answer(tags.split() if isinstance(tags, str) else list(tags), score))
        return answers

    def _refuse_other_words(self, value: Any, at: int, first: list[int], positions: int) -> None:
        """Raise if the words of a row are not those that the model reads.

        Raises:
            InputError: the words cannot be found among the pieces, or the text is truncated.
        """
        words = len(value.split() if isinstance(value, str) else value)
        if len(first) != words or (first and first[-1] >= positions):
            raise InputError(
                f"'{self.words}' has {words} words, but the model reads {len(first)} words in "
                f"{positions} positions",
                location=f"row {at + 1}",
                help="separate words by spaces, use a tokenizer whose pieces begin words, and"
                " shorten a text that is truncated",
            )


@dataclass(frozen=True, slots=True)
class _Numbers(_OnePass):
    """Predicts a number."""

    def read(self, passed: Passed, rows: Sequence[Row]) -> list[Answer]:
        """Return the number of each row of a batch."""
        del rows
        value_B = passed.mean(self.output)
        if value_B.ndim > 1 and value_B.size(-1) == 1:
            value_B = value_B.squeeze(-1)
        refuse_axes(value_B.ndim, 1, self.output)
        decode = self.context.column(self.context.answers).decode
        return [Answer(float(decode(value))) for value in value_B.tolist()]


def refuse_axes(axis_count: int, expected: int, output: str) -> None:
    """Raise if an output has another number of axes.

    Raises:
        InputError: the numbers differ.
    """
    if axis_count != expected:
        raise InputError(
            f"the output '{output}' has {axis_count} axes, not {expected}",
            help="set 'output' to another output, or choose a predictor that fits",
        )
