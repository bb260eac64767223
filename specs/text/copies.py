"""Copies of a repeat: their number, and those that a key of `instead` selects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_COPIES = 10_000
"""Most copies of a repeat."""

PATTERN = r"^(0|-?[1-9][0-9]{0,4}|(-?[0-9]{1,5})?:(-?[0-9]{1,5})?(:([1-9][0-9]{0,4})?)?)$"
"""A number of a copy, counted from the end if negative, or a slice `start:stop:step`."""


def number_of_copies(value: Any) -> int | None:
    """Return a value as a number of copies, from 1 to `MOST_COPIES`; None if it is not one.

    >>> number_of_copies(6), number_of_copies(6.0), number_of_copies(6.5), number_of_copies("=n")
    (6, 6, None, None)
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if number and 1 <= value <= MOST_COPIES and value == int(value) else None


def is_number(key: str) -> bool:
    """Return whether a key is the number of one copy, counted from the start.

    >>> is_number("4"), is_number("-1"), is_number("2::3")
    (True, False, False)
    """
    return key.isdecimal()


def selected_copies(key: str, count: int) -> range:
    """Return the copies that a key selects of `count` copies; a single one may not exist.

    >>> [*selected_copies("2::3", 7)], [*selected_copies("-1", 7)], [*selected_copies("9", 7)]
    ([2, 5], [6], [9])
    """
    if ":" not in key:
        first = int(key) if not key.startswith("-") else count + int(key)
        return range(first, first + 1)
    parts = (int(part) if part else None for part in key.split(":"))
    return range(*slice(*parts).indices(count))


def by_number(instead: Mapping[str, str], count: int) -> dict[int, str]:
    """Return the templates of the copies that `instead` selects, by number from 0 up."""
    return {
        index: template
        for key, template in instead.items()
        for index in selected_copies(key, count)
        if index >= 0
    }
