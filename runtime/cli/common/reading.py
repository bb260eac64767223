"""What commands read: the lines of a file, of a pipe as they come, or of a terminal."""

from __future__ import annotations

import os
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from ....specs.findings import InputError
from ...data.text_files import STDIN, decode, raw_lines
from ...system.arriving import Arriving
from . import terminal

T = TypeVar("T")
Answer = TypeVar("Answer")
SHOWN = 20
"""Mistakes that are printed; the others are counted."""
ALIKE = 3
"""Mistakes of one kind that are printed, with the same problem and way out."""


class Mistakes:
    """Lines and rows that cannot be answered: each gives an error, and the exit code is 1.

    The others are answered, so a wrong line in the middle of a file or a pipe loses no answer.
    """

    def __init__(self, what: str = "lines") -> None:
        """Begin without mistakes; `what` names the items."""
        self._what, self._count = what, 0
        self._kinds = Counter[tuple[str, str]]()
        self._more: list[str] = []
        self._problems: dict[int, str] = {}

    def add(self, number: int, error: InputError) -> None:
        """Tell what is wrong with an item.

        Args:
            number: number of the item, from 1.
            error: what is wrong with it.
        """
        self._problems[number] = (
            f"{error.location}: {error.problem}" if error.location else error.problem
        )
        self.tell(number, error)

    def tell(self, number: int, error: InputError) -> None:
        """Print what is wrong with an item, unless many are wrong, or some in the same way."""
        self._count += 1
        kind = error.problem, error.help
        if self._kinds[kind] < ALIKE and self._kinds.total() < SHOWN:
            self._kinds[kind] += 1
            terminal.show_error(error)
        elif len(self._more) <= SHOWN:
            self._more.append(f"{number:,}" if len(self._more) < SHOWN else "...")

    def warn(self, where: int | str, problem: str) -> None:
        """Print a warning of an item.

        Args:
            where: number of its line, or what warnings call it.
            problem: what it is about.
        """
        terminal.warn(where, problem)

    def __contains__(self, number: int) -> bool:
        """Return whether an item is wrong."""
        return number in self._problems

    def record(self, number: int) -> dict[str, str]:
        """Return what the output in JSON has of a wrong item, once; nothing of another."""
        problem = self._problems.pop(number, None)
        return {} if problem is None else {"error": problem}

    def exit_code(self) -> int:
        """Return the exit code of the command; tell the number of mistakes if not all are shown."""
        if self._more:
            numbers = ", ".join(self._more)
            terminal.notice(
                f"{self._count:,} {self._what} could not be answered, {numbers} among them"
            )
        return int(self._count > 0)


def decoded_lines(path: str | None) -> Iterator[tuple[str, InputError | None]]:
    """Yield each line of a file or of standard input, and why it is not text.

    Args:
        path: a file, plain text or compressed; None and `-` are standard input.

    Raises:
        InputError: the file cannot be read.
    """
    file = None if path == "-" else path
    for number, raw in enumerate(raw_lines(file), 1):
        try:
            yield decode(raw, file or STDIN, number), None
        except InputError as error:
            yield "", error


def answers_of(
    answer: Callable[[Sequence[T]], Sequence[Answer]],
    items: Sequence[T],
    refuse: Callable[[int, InputError], None],
    first: int = 0,
) -> list[Answer | None]:
    """Return the answer of each item; None for one that cannot be answered.

    A batch that is refused is divided into halves until the wrong items are alone.

    Args:
        answer: answers some of the items; raises InputError if one is wrong.
        items: the items.
        refuse: called with the index of each wrong item, and what is wrong.
        first: index of the first item.
    """
    if not items:
        return []
    try:
        return [*answer(items)]
    except InputError as error:
        if len(items) == 1:
            refuse(first, error)
            return [None]
    half = len(items) // 2
    return [
        *answers_of(answer, items[:half], refuse, first),
        *answers_of(answer, items[half:], refuse, first + half),
    ]


def as_it_arrives(items: Iterable[T], path: str | None, ahead: int) -> Iterator[T]:
    """Return the items that a command reads from a file or from standard input.

    Items of a pipe or a terminal are `Arriving`.  Those of a file on a disk can always be read, and
    how they are divided into batches does not depend on the time that this takes.  On a terminal, a
    prompt on stderr shows that the command waits for a line.

    Args:
        items: the items, which are read from the file as they are used.
        path: the file; None and `-` are standard input.
        ahead: number of items to read ahead.
    """
    if not _waits(path):
        return iter(items)
    if not prompts(path):
        return Arriving(items, ahead)
    return Arriving(items, ahead, waiting=_prompt, ended=_end_line)


def prompts(path: str | None) -> bool:
    """Return whether a command shows a prompt: its input and stderr are a terminal.

    Args:
        path: as in `as_it_arrives`.
    """
    typed = path in (None, "-") and _waits(path) and sys.stdin.isatty()
    return typed and sys.stderr.isatty()


def _waits(path: str | None) -> bool:
    """Return whether reading a file or standard input may have to wait for another program."""
    try:
        status = os.fstat(sys.stdin.fileno()) if path in (None, "-") else Path(str(path)).stat()
    except (AttributeError, OSError, ValueError):  # not a file of the system, or missing
        return False
    return not stat.S_ISREG(status.st_mode)


def _prompt() -> None:
    """Show that a line may be typed."""
    print("> ", end="", file=sys.stderr, flush=True)


def _end_line() -> None:
    """End the line of the last prompt."""
    print(file=sys.stderr)
