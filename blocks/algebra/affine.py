"""Formulas that are affine in a name: a factor times it, plus what does not depend on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...specs.expressions import Call, Expression, leaves
from .formula_source import number_of

HIDDEN = -1e9
"""Score from which a key counts as masked: in float32, no other score can be told from it."""


@dataclass(frozen=True, slots=True)
class AffineForm:
    """A formula as a factor times one of its names, plus what does not depend on it."""

    factor: float
    added: Expression | None = None
    """What is added; None for 0."""
    hides: bool = False
    """Whether it has the score of masked keys, so that it cannot be multiplied any more."""


def renamed(tree: Expression, names: Mapping[str, Any]) -> Expression:
    """Return a tree with other names, or numbers, in the place of names."""
    if isinstance(tree, Call):
        return Call(tree.function, tuple(renamed(part, names) for part in tree.arguments))
    return names.get(tree, tree) if isinstance(tree, str) else tree


def plus(first: Expression | None, second: Expression | None) -> Expression | None:
    """Return a sum, of which None is 0."""
    if first is None or second is None:
        return second if first is None else first
    return Call("+", (first, second))


def times(tree: Expression | None, factor: float) -> Expression | None:
    """Return a tree times a number."""
    return tree if tree is None or factor == 1 else Call("*", (factor, tree))


def affine(tree: Expression, name: str) -> AffineForm | None:  # noqa: PLR0911 - one for each form
    """Return a formula as a line in one of its names; None if it is none.

    `where` counts if one of its values is that of masked keys.
    """
    if tree == name:
        return AffineForm(1.0)
    if name not in leaves(tree):
        return AffineForm(0.0, tree)
    if not isinstance(tree, Call):
        return None
    parts = tuple(affine(part, name) for part in tree.arguments)
    match tree.function, tree.arguments, parts:
        case "negative", _, (AffineForm() as line,):
            return _scaled(line, -1.0)
        case "+" | "-" as sign, _, (AffineForm() as first, AffineForm() as second):
            other = _scaled(second, 1.0 if sign == "+" else -1.0)
            if other is None:
                return None
            hides = first.hides or other.hides
            return AffineForm(first.factor + other.factor, plus(first.added, other.added), hides)
        case "*", (x, z), (AffineForm() as first, AffineForm() as second):
            numbers = number_of(x), number_of(z)
            of_name, number = (second, numbers[0]) if numbers[1] is None else (first, numbers[1])
            return None if number is None else _scaled(of_name, number)
        case "/", (_, by), (AffineForm() as line, _):
            number = number_of(by)
            return _scaled(line, 1 / number) if number else None
        case "where", (condition, x, z), _ if name not in leaves(condition):
            hidden, inner = (z, parts[1]) if _hidden(z) else (x, parts[2])
            if not _hidden(hidden) or inner is None:
                return None
            added = 0 if inner.added is None else inner.added
            shown = (added, hidden) if hidden is z else (hidden, added)
            return AffineForm(inner.factor, Call("where", (condition, *shown)), hides=True)
    return None


def _scaled(line: AffineForm, factor: float) -> AffineForm | None:
    if line.hides and factor != 1:
        return None
    return AffineForm(line.factor * factor, times(line.added, factor), line.hides)


def _hidden(tree: Expression) -> bool:
    """Return whether a part of a formula is the score of masked keys."""
    if tree == Call("negative", ("inf",)):
        return True
    number = number_of(tree)
    return number is not None and number <= HIDDEN
