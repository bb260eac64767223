"""What commands write: the answers to rows in batches, wrong ones among them, and lines of text."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ....specs.findings import InputError
from ...system.arriving import take
from . import terminal
from .reading import Mistakes, answers_of, as_it_arrives, prompts

if TYPE_CHECKING:
    from ...decode.predictors.predictor import Answer
    from ...system.executors.units import Watch, WorkUnits

T = TypeVar("T")
_LINE_ENDS = str.maketrans("\n\r", "  ")
"""Replaces line ends inside an output; a model may generate them as bytes."""


@dataclass(frozen=True, slots=True)
class InputRow:
    """A line of the input, before it is read as a row."""

    number: int
    """Number of the line, from 1."""
    name: int | str
    """What warnings call it."""
    location: str
    """File and line."""
    text: str
    """The line; empty if it is not text."""
    read: Callable[[], dict[str, Any]]
    """Returns the values; raises InputError if the line is wrong."""

    def placed(self, error: InputError) -> InputError:
        """Return an error of this row with file and line."""
        numbers = ("row ", "line ", "prompt", self.location)
        inside = error.location and not error.location.startswith(numbers)
        problem = f"{error.problem}: {error.location}" if inside else error.problem
        return InputError(problem, location=self.location, help=error.help)


class Answered(Generic[T]):
    """Rows that are answered in batches; a wrong row loses no other answer."""

    def __init__(
        self, rows: Iterable[InputRow], source: str | None, size: int, mistakes: Mistakes
    ) -> None:
        """Store the rows.

        Args:
            rows: the rows.
            source: their file, if there is one.
            size: rows of a batch.
            mistakes: gets wrong rows and warnings.
        """
        self._rows, self._size = as_it_arrives(rows, source, size), size
        self._asked: Sequence[InputRow] = ()
        self._warned: set[int] = set()
        self.mistakes = mistakes

    def warn(self, row: int, problem: str) -> None:
        """Warn of a row of the last batch, by its number from 1."""
        chosen = self._asked[row - 1]
        if chosen.number not in self._warned:  # rows of a batch that is divided are read again
            self._warned.add(chosen.number)
            self.mistakes.warn(chosen.name, problem)

    def batches(
        self, answer: Callable[[list[dict[str, Any]]], Sequence[T]]
    ) -> Iterator[list[tuple[InputRow, T | None]]]:
        """Yield the rows of each batch with their answers; None for a wrong row.

        Args:
            answer: answers rows; raises InputError if one is wrong.
        """

        def answered(rows: Sequence[InputRow]) -> Sequence[T]:
            self._asked = rows
            return answer([row.read() for row in rows])

        def refuse(index: int, error: InputError) -> None:
            self.mistakes.add(part[index].number, part[index].placed(error))

        while part := take(self._rows, self._size):
            yield list(zip(part, answers_of(answered, part, refuse), strict=True))
            self._warned.clear()


class Streamed:
    """Rows that are read ahead while others are answered; a wrong row loses no other answer."""

    def __init__(
        self, rows: Iterable[InputRow], source: str | None, ahead: int, mistakes: Mistakes
    ) -> None:
        """Store the rows, which have consecutive numbers; arguments as of `Answered`.

        Args:
            rows: the rows.
            source: their file, if there is one.
            ahead: rows to read ahead.
            mistakes: gets wrong rows and warnings.
        """
        self._rows, self._source, self._ahead = rows, source, ahead
        self._pending = deque[InputRow]()
        self._before = 0
        self.mistakes = mistakes

    def values(self, read: Callable[[dict[str, Any]], T], empty: T) -> Iterator[T]:
        """Return what is answered, as it arrives.

        Args:
            read: returns what is answered for the values of a row; InputError if it is wrong.
            empty: what is answered for a wrong row.
        """

        def all_values() -> Iterator[T]:
            for index, row in enumerate(self._rows, 1):
                self._before = row.number - index  # rows before those of a chunk
                self._pending.append(row)
                try:
                    yield read(row.read())
                except InputError as error:
                    self.mistakes.add(row.number, error)
                    yield empty

        return as_it_arrives(all_values(), self._source, self._ahead)

    def warn(self, index: int, problem: str) -> None:
        """Warn of a row, by its number among those that are answered, from 1."""
        self.mistakes.warn(self._before + index, problem)

    def answered(self, answers: Iterable[T]) -> Iterator[tuple[InputRow, T]]:
        """Yield each row with its answer."""
        for answer in answers:
            yield self._pending.popleft(), answer


def counter_for(
    what: str, source: str | None, out: str | None, *, asked: bool
) -> terminal.LineCounter | None:
    """Return a counter if the user asked for it, or if it disturbs neither output nor prompt.

    Args:
        what: what is counted, such as `lines translated`.
        source: the input file, if there is one.
        out: the output file, if there is one.
        asked: whether the user asked for progress.
    """
    free = (out is not None or not sys.stdout.isatty()) and not prompts(source)
    return terminal.LineCounter(what) if asked or (terminal.shows_progress() and free) else None


@contextmanager
def followed(what: str, count: Callable[[int], None]) -> Iterator[Watch]:
    """Give what shows units in a table on a terminal; elsewhere, what counts their rows.

    Args:
        what: what is counted, such as `lines translated`.
        count: called with the number of further rows that are done.
    """
    if terminal.shows_progress():
        rows, _, verb = what.partition(" ")
        with terminal.Reporter().shown() as reporter:

            def show(units: WorkUnits[Any]) -> None:
                reporter.watch(units)
                reporter.counted(verb, units.rows, None, rows)

            yield show
        return
    counted = 0

    def more(units: WorkUnits[Any]) -> None:
        nonlocal counted
        count(units.rows - counted)
        counted = units.rows

    yield more


def lines_of(number: int, answers: Sequence[Answer], *, numbered: bool) -> str:
    """Return the best text as a line, or the number of its row, score and text of each.

    Args:
        number: number of the row.
        answers: its answers, best first; none for an empty or a wrong row.
        numbered: whether there may be several answers.
    """
    if not answers:
        return f"{number}\t\t\n" if numbered else "\n"
    lines = [(answer.score, answer.value.translate(_LINE_ENDS)) for answer in answers]
    if not numbered:
        return f"{lines[0][1]}\n"
    return "".join(f"{number}\t{score:.4f}\t{text}\n" for score, text in lines)
