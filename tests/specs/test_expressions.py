"""Tests of expressions, compared with Python's arithmetic."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.specs.expressions import (
    DEEPEST,
    LARGEST,
    LONGEST,
    ExpressionError,
    UnknownNameError,
    evaluate,
    is_expression,
    names_in,
    words_in,
)

VALUES = {"d_model": 512, "heads": 8, "dropout": 0.1, "order": "pre", "choice": {"use": "relu@1"}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("4*d_model", 2048),
        ("d_model // heads", 64),
        ("d_model / 1024", 0.5),
        ("d_model % 100", 12),
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 3 - 2", 5),
        ("100 / 10 / 5", 2.0),
        ("7 // 2 * 2", 6),
        ("2 ** 3 ** 2", 512),
        ("-2 ** 2", -4),
        ("2 ** -1", 0.5),
        ("--3", 3),
        ("-7 // 2", -4),
        ("-7 % 3", 2),
        (".5 + 1.e1", 10.5),
        ("2.5e-1", 0.25),
        ("d_model % heads == 0", True),
        ("heads > 8", False),
        ("(heads >= 8)", True),
        ("dropout != 0.1", False),
        ("1 + 1 <= 2 * 1", True),
        ("dropout", 0.1),
        ("order", "pre"),
        (" choice ", {"use": "relu@1"}),
        ("min(heads, 3)", 3),
        ("max(1, heads // 2, 2)", 4),
        ("max(dropout, 0.5) * 2", 1.0),
        ("ceil(d_model / 100)", 6),
        ("floor(-0.5)", -1),
        ("ceil(8 / 3 * d_model / 64) * 64", 1408),
        ("min(max(heads, 2), (3 + 4))", 7),
        ("heads > 4 and d_model > 1000 or not heads == 4", True),
        ("not (heads > 4 or heads < 2)", False),
        ("where(heads >= 8, d_model, heads)", 512),
        ("sqrt(d_model * 2)", 32.0),
        ("exp(0) + log(1) + tanh(0) + abs(-3)", 4.0),
        ("sigmoid(0) + relu(-2) + relu(2)", 2.5),
    ],
)
def test_values_worked_out_by_hand(text: str, value: Any) -> None:
    """Precedence and rounding are Python's; a single name gives its value."""
    assert evaluate(text, VALUES) == value
    assert type(evaluate(text, VALUES)) is type(value)


NUMBERS = st.one_of(
    st.integers(0, 50).map(str), st.sampled_from(["0.5", "1.25", "3.0", "a", "b", "c"])
)


def joined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return expressions one level deeper, with parentheses only where drawn."""
    symbols = st.sampled_from(["+", "-", "*", "/", "//", "%", "**"])
    gaps = st.sampled_from(["", " "])
    return st.one_of(
        st.tuples(parts, gaps, symbols, gaps, parts).map("".join),
        parts.map("({})".format),
        parts.map("-{}".format),
    )


@given(st.recursive(NUMBERS, joined, max_leaves=8))
def test_precedence_is_pythons(text: str) -> None:
    """An expression with a value has the same value in Python."""
    names = {"a": 3, "b": 0.5, "c": -2}
    try:
        ours = evaluate(text, names)
    except ExpressionError:
        return

    theirs = eval(compile(ast.parse(text, mode="eval"), "", "eval"), {}, names)

    assert ours == theirs
    assert type(ours) is type(theirs)


@given(st.text(max_size=30))
def test_any_text_has_a_value_or_an_expression_error(text: str) -> None:
    """The parser raises no other exception."""
    try:
        evaluate(text, VALUES)
        names_in(text)
    except ExpressionError:
        pass


@given(st.text(alphabet="0123456789.e+-*/%()<>= ab", max_size=40))
def test_any_arithmetic_has_a_bounded_value_or_an_expression_error(text: str) -> None:
    """Including overflow, division by zero and complex numbers."""
    try:
        value = evaluate(text, {"a": 2**53, "b": 1e-300})
    except ExpressionError:
        return

    assert abs(value) <= LARGEST


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("1 +", "ends too early"),
        ("(1", "not closed"),
        ("1 2", "'2' is unexpected"),
        ("* 2", "'*' is unexpected"),
        ("1 < 2 < 3", "'<' is unexpected"),
        ("1/0", "divides by zero"),
        ("1//0.0", "divides by zero"),
        ("1%(heads-8)", "divides by zero"),
        ("0**-1", "out of bounds"),
        ("2**65", "out of bounds"),
        ("9**9**9**9", "out of bounds"),
        ("2**60", "larger"),
        ("1e15**60", "larger"),
        ("9007199254740993", "larger"),
        ("1e999", "not a finite"),
        ("(-8)**0.5", "not a finite"),
        ("order + 1", "'order' is not a number"),
        ("choice * 2", "'choice' is not a number"),
        ("(1 < 2) + 1", "comparison is not a number"),
        ("-(1 < 2)", "comparison is not a number"),
        ("2 ** (1 < 2)", "comparison is not a number"),
        ("1" * (LONGEST + 1), "longer than"),
        ("(" * (DEEPEST + 1) + "1" + ")" * (DEEPEST + 1), "nested more than"),
        ("-" * (DEEPEST + 2) + "1", "nested more than"),
        ("**".join("1" * (DEEPEST + 2)), "nested more than"),
        ("print(1)", "'print(' is a call; the only functions are min, max, ceil, floor"),
        ("heads.real", "'.' is not allowed"),
        ("heads[0]", "'[' is not allowed"),
        ("'a'", "is not allowed"),
        ("a if 1 else 2", "unexpected"),
        ("lambda: 1", "':' is not allowed"),
        ("1, 2", "',' is unexpected"),
        ("min()", "unexpected"),
        ("ceil(1, 2)", "'ceil' takes 1 argument, not 2"),
        ("max(" + ",".join("123456789") + ")", "takes 1 to 8 arguments, not 9"),
        ("max(1", "not closed"),
        ("max(1 < 2, 3)", "comparison is not a number"),
        ("min", "unknown name"),
        ("ceil(" * (DEEPEST + 1) + "1" + ")" * (DEEPEST + 1), "nested more than"),
        ("2^3", "'^' is not allowed in an expression; write ** for a power"),
        ("heads & 1", "'&' is not allowed in an expression; write 'and' between conditions"),
        ("log(0)", "'log' has no value for 0"),
        ("exp(1000)", "larger"),
        ("where(heads, 1, 2)", "'where' needs a condition"),
        ("not heads", "'not' needs a condition"),
        ("(1 < 2 and 2 < 3) + 1", "comparison is not a number"),
        ("where(1 < 2, 3)", "'where' takes 3 arguments, not 2"),
        ("not " * (DEEPEST + 2) + "1 < 2", "nested more than"),
        ("heads = 8", "write == to compare"),
        ("heads := 2", "':' is not allowed"),
        ("1 @ 2", "'@' is not allowed"),
        ("~1", "'~' is not allowed in an expression; write 'not' before a condition"),
        ("heads and 1", "'and' needs a condition"),
        ("\u0663", "is not allowed"),
        ("1\x00", "is not allowed"),
    ],
)
def test_everything_else_is_refused_with_a_reason(text: str, why: str) -> None:
    """Attributes, calls, indices, strings, keywords and out-of-bounds numbers."""
    with pytest.raises(ExpressionError) as error:
        evaluate(text, {**VALUES, "a": 1, "lambda": 1, "else": 1})

    assert why in str(error.value)


@pytest.mark.parametrize("size", [10**400, float("inf"), -(2**54)])
def test_a_param_beyond_bounds_is_refused(size: float) -> None:
    """The limits for numbers in the text also apply to params."""
    with pytest.raises(ExpressionError):
        evaluate("size + 1", {"size": size})


def test_an_unknown_name_is_named() -> None:
    """So that the caller can suggest the nearest one."""
    with pytest.raises(UnknownNameError) as error:
        evaluate("2 * hedas", VALUES)

    assert error.value.name == "hedas"


def test_names_come_once_and_in_order() -> None:
    """In order of first appearance."""
    assert names_in("b*a + b - 2") == ("b", "a")


def test_names_are_found_in_an_invalid_expression() -> None:
    """A broken expression still counts as a reader of its params."""
    assert words_in("=4*d_model +* (heads") == {"d_model", "heads"}


@pytest.mark.parametrize("text", ["41e999d_model", "4d_model", ".5e3d_model", "1.d_model"])
def test_letters_of_a_number_are_no_part_of_the_word_behind_it(text: str) -> None:
    """Params are evaluated in the order of these words, so each must be found."""
    assert words_in(f"={text}") == set(names_in(text)) == {"d_model"}


@given(st.lists(st.sampled_from(["1", ".5", "2e9", "1.", "d", "e9", "_x", "+", "**", "(", " "])))
def test_every_name_of_an_expression_is_one_of_its_words(parts: list[str]) -> None:
    """Also where numbers and names are adjacent."""
    text = "".join(parts)
    try:
        names = names_in(text)
    except ExpressionError:
        return

    assert words_in(text) == set(names)


@pytest.mark.parametrize(("value", "answer"), [("=1", True), ("1", False), (1, False), ("", False)])
def test_an_expression_begins_with_a_sign(value: object, answer: bool) -> None:
    """Only a string can be an expression."""
    assert is_expression(value) is answer
