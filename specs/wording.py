"""Wording of validation errors: what a value must be, in Weft's own words.

pydantic's messages are written for programmers; no message of Weft repeats them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FIXED = {
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "dict_type": "must be an object",
    "string_type": "must be a string",
    "string_unicode": "must be a string of Unicode characters",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "none_required": "must be null",
    "missing": "is missing",
    "extra_forbidden": "is not a known key",
    "string_pattern_mismatch": "is not a valid name",
    "json_invalid": "is not valid JSON",
    "json_type": "is not valid JSON",
    "recursion_loop": "is nested too deeply",
}
"""Type of a pydantic error to a clause that follows the name of the value."""
_BOUNDED = {
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "union_tag_invalid": "must have {discriminator} among {expected_tags}",
    "union_tag_not_found": "needs a {discriminator}",
    "string_too_long": "must have at most {max_length} characters",
}
"""Type of a pydantic error to a clause with places for the error's context."""


def describe(error: Mapping[str, Any]) -> str:
    """Return what is wrong with a value, as a clause that follows its name.

    Args:
        error: one entry of `ValidationError.errors()`.

    >>> describe({"type": "greater_than_equal", "ctx": {"ge": 1}})
    'must be at least 1'
    """
    kind, context = str(error["type"]), error.get("ctx", {})
    if kind in _FIXED:
        return _FIXED[kind]
    if kind in _BOUNDED:
        return _BOUNDED[kind].format_map({key: _plain(value) for key, value in context.items()})
    if kind in ("value_error", "assertion_error"):
        # The text of our own validators.
        return str(context.get("error", "")) or "is not valid"
    if kind == "string_too_short":
        least = context["min_length"]
        return "must not be empty" if least == 1 else f"must have at least {least} characters"
    if kind in ("too_short", "too_long"):
        return f"must be {_sized(kind, context)}"
    return "is not valid"


def _plain(value: Any) -> Any:
    """Return a whole number without a decimal point: 1.0 as 1."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def expected(error: Mapping[str, Any]) -> str:
    """Return only what was expected, such as `a string`, or `""` if the clause says more."""
    clause = describe(error)
    return clause.removeprefix("must be ") if clause.startswith("must be ") else ""


def _sized(kind: str, context: Mapping[str, Any]) -> str:
    """Return the required size of a list or of an object."""
    keyed = context.get("field_type") == "Dictionary"
    thing, part = ("an object", "key") if keyed else ("a list", "entry")
    count = context["min_length" if kind == "too_short" else "max_length"]
    parts = part if count == 1 else {"key": "keys", "entry": "entries"}[part]
    side = "at least" if kind == "too_short" else "at most"
    return f"{thing} with {side} {'one' if count == 1 else count} {parts}"
