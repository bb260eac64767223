"""Wording of validation errors: every kind has a clause, and none repeats pydantic's text."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args

import pytest
from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import core_schema
from weft.specs.wording import describe, expected


def clause(annotation: Any, value: Any) -> str:
    """Return the clause for a value that does not have a type."""
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(annotation).validate_python(value, strict=True)
    return describe(caught.value.errors()[0])


@pytest.mark.parametrize(
    ("annotation", "value", "wanted"),
    [
        (Annotated[int, Field(ge=1)], 0, "must be at least 1"),
        (Annotated[float, Field(gt=0)], 0.0, "must be greater than 0"),
        (Annotated[float, Field(le=1)], 1.5, "must be at most 1"),
        (Annotated[int, Field(lt=8)], 8, "must be less than 8"),
        (int, "three", "must be a whole number"),
        (float, "three", "must be a number"),
        (bool, 1, "must be true or false"),
        (str, 3, "must be a string"),
        (dict[str, int], [], "must be an object"),
        (list[int], {}, "must be a list"),
        (Literal["a", "b"], "c", "must be 'a' or 'b'"),
        (Annotated[str, Field(min_length=1)], "", "must not be empty"),
        (Annotated[dict[str, int], Field(min_length=1)], {}, "must be an object with at least one"),
        (Annotated[list[int], Field(max_length=2)], [1, 2, 3], "must be a list with at most 2 ent"),
    ],
)
def test_a_clause_says_what_the_value_must_be(annotation: Any, value: Any, wanted: str) -> None:
    """It follows the name of the value: 'beam' must be at least 1."""
    assert clause(annotation, value).startswith(wanted)


def test_the_text_of_our_own_validators_is_kept() -> None:
    """Pydantic would put "Value error, " before it."""
    error = {"type": "value_error", "ctx": {"error": ValueError("'nbest' 5 exceeds 'beam' 4")}}

    assert describe(error) == "'nbest' 5 exceeds 'beam' 4"


def test_every_error_type_has_a_clause() -> None:
    """A type that is not known gets a clause too; the context here has every key in use."""
    numbers = dict.fromkeys(("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length"), 2)
    context = {**numbers, **dict.fromkeys(("expected", "expected_tags", "discriminator"), "'a'")}

    clauses = {
        kind: describe({"type": kind, "ctx": context}) for kind in get_args(core_schema.ErrorType)
    }

    assert len(clauses) > 100
    wrong = re.compile(r"$|.*\{|Input|Value error")
    assert {kind: clause for kind, clause in clauses.items() if wrong.match(clause)} == {}


def test_the_expected_value_stands_alone() -> None:
    """The help line of a finding is "write a string"."""
    assert expected({"type": "string_type"}) == "a string"
    assert expected({"type": "missing"}) == ""
