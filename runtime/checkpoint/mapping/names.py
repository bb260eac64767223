"""Patterns of weight names: placeholders on the left side of a table's line, and their uses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ....specs.expressions import ExpressionError, evaluate, names_in
from ....specs.findings import did_you_mean

_HOLE = re.compile(r"\{(\*?[a-z][a-z0-9_]*)\}")
_FILLED = re.compile(r"\{([^{}]*)\}")


def holes_in(pattern: str) -> frozenset[str]:
    """Return the placeholders of a pattern, without the star of those for several name parts.

    >>> sorted(holes_in("encoder.{i}.{*p}"))
    ['i', 'p']
    """
    return frozenset(hole.removeprefix("*") for hole in _HOLE.findall(pattern))


def uses_in(name: str) -> frozenset[str]:
    """Return the placeholders that the expressions in a name read.

    Raises:
        ExpressionError: an expression cannot be read.

    >>> sorted(uses_in("layers.{2*i + 1}.{p}"))
    ['i', 'p']
    """
    uses = frozenset[str]()
    for text in _FILLED.findall(name):
        words = names_in(text)
        evaluate(text, dict.fromkeys(words, 2))  # for mistakes of its grammar
        uses |= frozenset(words)
    return uses


def matcher(pattern: str) -> re.Pattern[str]:
    """Compile a pattern to a regular expression.

    A placeholder matches one name part; one with a star matches one or more of them.

    >>> matcher("encoder.{i}.{*p}").fullmatch("encoder.3.norm.bias").groupdict()
    {'i': '3', 'p': 'norm.bias'}
    """
    parts: list[str] = []
    defined: set[str] = set()
    for at, part in enumerate(_HOLE.split(pattern)):
        hole, parted = part.removeprefix("*"), part.startswith("*")
        if at % 2 == 0:
            parts.append(re.escape(part))
        else:
            text = r"[^.]+(?:\.[^.]+)*" if parted else "[^.]+"
            parts.append(f"(?P={hole})" if hole in defined else f"(?P<{hole}>{text})")
            defined.add(hole)
    return re.compile("".join(parts))


def help_for(pattern: str, names: Iterable[str]) -> str:
    """Return a help for a pattern that fits none of some names: a similar word; empty if none is.

    >>> help_for("encodr.{i}.weight", ["encoder.0.weight"])
    "did you mean 'encoder'?"
    """
    words = {word for name in names for word in name.split(".")}
    for word in pattern.split("."):
        if "{" not in word and word not in words:
            help_ = did_you_mean(word, words)
            return help_ if help_.startswith("did you mean") else ""
    return ""


def filled(pattern: str, holes: Mapping[str, str]) -> str:
    """Return a name with its placeholders replaced; other expressions need whole numbers.

    Placeholders that are not given are kept.

    Raises:
        ExpressionError: an expression has no value, or one that is not a natural number.

    >>> filled("layers.{2*i + 1}.{p}", {"i": "3", "p": "bias"})
    'layers.7.bias'
    """

    def fill(match: re.Match[str]) -> str:
        text = match[1]
        if text in holes:
            return holes[text]
        if not holes.keys() & set(names_in(text)):
            return match[0]
        value = evaluate(text, numbers_of(holes))
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            msg = f"'{{{text}}}' of '{pattern}' is {value}, which is not a number of a layer"
            raise ExpressionError(msg)
        return str(value)

    return _FILLED.sub(fill, pattern)


def numbers_of(holes: Mapping[str, str]) -> dict[str, int]:
    """Return the placeholders that stand for numbers, as names for expressions."""
    return {name: int(text) for name, text in holes.items() if text.isdecimal()}
