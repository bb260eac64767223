"""Patterns: names for the axes of values, such as `b t d, d e -> b t e`.

A name is a letter or a word.  `...` in front stands for any number of axes, the same in all values
that have it.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from ...graphs.ir.block_type import MismatchError
from ...graphs.ir.value_type import Axis, ValueType
from ...specs.findings import did_you_mean

Names = tuple[str, ...]
LEAD = "..."
MOST_NAMES = 20
"""Maximum number of names in a pattern."""
_TOKENS = 2
"""Number of leading axes of unpadded tokens: the batch and the positions."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """The names of the axes of some values, and of a result that is computed from them."""

    values: tuple[Names, ...]
    result: Names

    def __str__(self) -> str:
        """Write the pattern with single spaces.

        >>> str(parsed_pattern("b t d,d e->b t e"))
        'b t d, d e -> b t e'
        """
        return f"{', '.join(map(' '.join, self.values))} -> {' '.join(self.result)}".rstrip()

    @property
    def names(self) -> Names:
        """All names, each once, in order."""
        return tuple(dict.fromkeys(name for axes in (*self.values, self.result) for name in axes))

    def letters(self) -> Pattern:
        """Return the pattern with a letter for each word, as `torch.einsum` takes it."""
        letters = {name: name for name in self.names if len(name) == 1 or name == LEAD}
        for name in self.names:
            free = (c for c in name + string.ascii_letters if c.isalpha() and c.isascii())
            letters.setdefault(name, next(c for c in free if c not in letters.values()))
        values = tuple(tuple(letters[name] for name in axes) for axes in self.values)
        return Pattern(values, tuple(letters[name] for name in self.result))

    def with_lead(self, types: Sequence[ValueType]) -> Pattern:
        """Return the pattern with `...` for the leading axes of tokens, which may be unpadded.

        These are at least two axes of the graph, with which the result and every value begin, or
        of which a value has none.

        Args:
            types: types of the values.
        """
        if LEAD in self.names:
            return self
        axes: dict[str, Axis] = {}
        for names, type_ in zip(self.values, types, strict=True):
            axes |= dict(zip(names, type_.axes, strict=False))
        counts = range(_TOKENS, len(self.result) + 1)
        count = max((n for n in counts if self._begins(self.result[:n], axes)), default=0)
        lead = self.result[:count]
        values = tuple(_led(names, lead) for names in self.values)
        return Pattern(values, _led(self.result, lead)) if count else self

    def _begins(self, lead: Names, axes: Mapping[str, Axis]) -> bool:
        """Return whether every value begins with these names, or has none of them."""
        same = all(names[: len(lead)] == lead or not {*names} & {*lead} for names in self.values)
        return same and all(isinstance(axes[name], str) for name in lead)


def _led(names: Names, lead: Names) -> Names:
    begins = bool(lead) and names[: len(lead)] == lead
    return (LEAD, *names[len(lead) :]) if begins else names


def parsed_pattern(text: str) -> Pattern:
    """Parse a pattern of values and a result.

    Raises:
        ValueError: the text is not a pattern, or its result has a name that no value has.
    """
    before, arrow, after = text.partition("->")
    if not arrow:
        msg = f"'{text}' has no '->' before the axes of the result"
        raise ValueError(msg)
    values, result = tuple(map(axis_names, before.split(","))), axis_names(after)
    available = list(dict.fromkeys(name for axes in values for name in axes))
    for name in result:
        if name not in available:
            help_ = did_you_mean(name, available)
            msg = f"'{text}': the result has the axis '{name}', which no value has"
            raise ValueError(f"{msg}; {help_}" if help_ else msg)
    if len(available) > MOST_NAMES:
        msg = f"the pattern names {len(available)} axes; at most {MOST_NAMES} are allowed"
        raise ValueError(msg)
    if LEAD in available and LEAD not in result:
        msg = f"'{text}': the result lacks the '...' of the values"
        raise ValueError(msg)
    return Pattern(values, result)


def axis_names(text: str) -> Names:
    """Parse the names of the axes of one value.

    Raises:
        ValueError: a name is not a word, or occurs twice, or there are too many.
    """
    names = tuple(text.split())
    for index, name in enumerate(names):
        if name == LEAD and index:
            msg = f"'{text.strip()}': '...' may only precede the other axes"
            raise ValueError(msg)
        if name != LEAD and not (name.isascii() and name.isidentifier() and name[0].isalpha()):
            advice = "put spaces between the names of axes"
            msg = f"'{text.strip()}': '{name:.40}' is not the name of an axis; {advice}"
            raise ValueError(msg)
    if len(names) > MOST_NAMES:
        msg = f"'{text.strip():.60}' names {len(names)} axes; at most {MOST_NAMES} are allowed"
        raise ValueError(msg)
    name, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        msg = f"'{text.strip()}' names the axis '{name}' twice"
        raise ValueError(msg)
    return names


PatternText = Annotated[str, AfterValidator(lambda text: str(parsed_pattern(text)))]
"""A param with a pattern of values and a result, which is kept with single spaces."""


Groups = tuple[Names, ...]
"""The names of each axis of a value: several if it is a product, as in `b t (h k)`."""


def split_groups(text: str) -> tuple[str, Groups, Groups]:
    """Return a pattern of one value without its parentheses, and the groups of both sides.

    >>> split_groups("b t (h k) -> b h t k")[0]
    'b t h k -> b h t k'

    Raises:
        ValueError: a parenthesis is not closed, or the pattern has several values.
    """
    before, arrow, after = text.partition("->")
    if "," in before:
        msg = f"'{text}' has parentheses, so it must have one value"
        raise ValueError(msg)
    first, last = tuple(_groups_of(before)), tuple(_groups_of(after))
    flat = [" ".join(name for group in groups for name in group) for groups in (first, last)]
    return f"{flat[0]} {arrow} {flat[1]}", first, last


def _groups_of(text: str) -> Iterator[Names]:
    """Yield the names of each axis of one side of a pattern."""
    for group in re.findall(r"\([^()]*\)|[^()\s]+|[()]", text):
        names = axis_names(group.strip("()")) if group not in "()" else ()
        if not names or (LEAD in names and group.startswith("(")):
            msg = f"'{text.strip()}': '{group}' is not a group of axes, such as (h k)"
            raise ValueError(msg)
        yield names


def refuse_permuted(pattern: Pattern) -> None:
    """Refuse a result whose axes are in another order than those of the only value.

    Raises:
        ValueError: they are.
    """
    (names,) = pattern.values
    if pattern.result != tuple(name for name in names if name in pattern.result):
        msg = f"'{pattern}' also permutes axes; do that with einsum@1"
        raise ValueError(msg)


def port_type(names: Names, type_: ValueType, value: str) -> ValueType:
    """Return the type of a port whose axes have names, and which a value fits in kind.

    Raises:
        MismatchError: the value has another number of axes.
    """
    least = len(names) - (LEAD in names)
    if len(type_.axes) < least or (LEAD not in names and len(type_.axes) > least):
        msg = f"'{' '.join(names)}' names {least} axes of '{value}', which has {len(type_.axes)}"
        raise MismatchError("T04", msg, port=value, help="name every axis once, in its order")
    return ValueType(type_.kind, tuple(map(lower, names)), type_.size)


def lower(name: str) -> str:
    """Return the name of an axis in the type of a port, in which upper case is fixed."""
    return name if name[:1].islower() or name == LEAD else f"_{name}"


def aligned(names: Names, mine: Names) -> str:
    """Return the index that aligns a value that has some axes with one that has all.

    Args:
        names: names of all axes.
        mine: those of the value, in the same order.

    Returns:
        The index; empty if it is not needed.

    >>> aligned(("b", "h", "t", "s"), ("b", "s"))
    '[..., None, None, :]'
    """
    first = names.index(mine[0]) if mine else len(names)
    inner = [":" if name in mine else "None" for name in names[first:]]
    while inner and inner[0] == ":":
        inner.pop(0)
    return f"[..., {', '.join(inner)}]" if inner else ""
