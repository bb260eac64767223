"""Raw values of columns: what may be a text, a class, tags or a number.

Both sides of a comparison use these functions: the column that stores a value, and the metric that
compares it with an answer.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....specs.findings import InputError

LARGEST = float(np.finfo(np.float32).max)


def text_of(value: Any, name: str) -> str:
    """Return a value that must be a text.

    Raises:
        InputError: it is something else, or has half of a surrogate pair, which is no character.
    """
    if not isinstance(value, str):
        raise InputError(
            f"the value of '{name}' is {value!r:.60}, not a text",
            help="write a string, or name another field as 'from' of the column",
        )
    if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InputError(
            f"the value of '{name}' has half of a surrogate pair: {value!r:.60}",
            help="write the character, or both halves, such as \\ud83d\\ude00",
        )
    return value


def class_of(value: Any, name: str) -> str:
    """Return a value that must be a class: a text, or a whole number or truth value as text.

    Raises:
        InputError: it is something else, or empty.
    """
    if isinstance(value, (bool, int, np.integer)):
        return str(value)
    if isinstance(value, str) and value.strip():
        return text_of(value, name).strip()
    raise InputError(
        f"the value of '{name}' is {value!r:.60}, not a class",
        help='write a name or a whole number, such as "noun" or 3',
    )


def tags_of(value: Any, name: str) -> list[str]:
    """Return the tags in a value: a text with white space, or a list of texts.

    Raises:
        InputError: it is something else.
    """
    if isinstance(value, (list, tuple)):
        return [class_of(tag, name) for tag in value]
    return text_of(value, name).split()


def number_of(value: Any, name: str) -> float:
    """Return a value that must be a number, or a text with one, in the range of float32.

    Raises:
        InputError: it is something else, or not finite.
    """
    try:
        wrong = isinstance(value, bool) or (isinstance(value, str) and "_" in value)
        number = math.nan if wrong else float(value)
    except (OverflowError, TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or abs(number) > LARGEST:
        raise InputError(
            f"the value of '{name}' is {value!r:.60}, not a finite number",
            help="write a number such as 0.5",
        )
    return number
