"""Params are solved from the values of expressions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.extensions.interop.export.huggingface.equations import linear_root, root_of, solved
from weft.specs.expressions import evaluate


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 9))
def test_names_are_solved_one_after_another(d: int, k: int, factor: int) -> None:
    """A name, then an expression in which one other name is unknown."""
    equations = [(f"{factor}*d + k", factor * d + k), ("d", d)]

    assert solved(equations, {}) == {"d": d, "k": k}


@pytest.mark.parametrize(("text", "wanted"), [("size**-0.5", 16), ("size//2", 128), ("1/size", 7)])
def test_monotonic_expressions_are_inverted(text: str, wanted: int) -> None:
    """Of several numbers with the value, the smallest whole one."""
    assert root_of(text, "size", evaluate(text, {"size": wanted}), {}) == wanted


def test_words_are_values_of_single_names() -> None:
    """Strings and booleans too; known names are not returned."""
    assert solved([("act", "relu"), ("heads", 4)], {"heads": 4}) == {"act": "relu"}


@pytest.mark.parametrize("text", ["d*d", "d % 3", "d > 1", "7", "floor(d/8)"])
def test_only_linear_expressions_are_inverted(text: str) -> None:
    """Another one is left open rather than guessed."""
    value = 16 if text == "d*d" else 1

    assert linear_root(text, "d", value, {}) is None


@given(st.integers(-9, 9).filter(bool), st.integers(-9, 9), st.integers(0, 99))
def test_a_root_gives_the_value(factor: int, offset: int, wanted: int) -> None:
    """Evaluating the expression at the root."""
    text = f"({factor})*x + ({offset})"

    root = linear_root(text, "x", factor * wanted + offset, {})

    assert root == wanted
    assert evaluate(text, {"x": root}) == factor * wanted + offset
