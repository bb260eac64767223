"""Values of a table that are neither numbers nor strings of the configuration."""

from __future__ import annotations

import pytest
from weft.extensions.interop.importing.config import Configuration
from weft.specs.expressions import ExpressionError, UnknownNameError

CONFIG = Configuration(
    {
        "labels": {"0": "cat", "1": "dog", "2": "owl"},
        "sizes": [4, 5],
        "size": 4,
        "types": ["local", "local", "full", "local", "local", "full", "local"],
    },
    {"names": {"0": "yes", "1": "no"}},
    "config.json",
)


@pytest.mark.parametrize(("key", "wanted"), [("labels", 3), ("sizes", 2), ("names", 2)])
def test_entries_are_counted(key: str, wanted: int) -> None:
    """Entries of an object, a list, and a default."""
    assert CONFIG.value_of({"count": key}) == wanted


def test_a_number_has_no_length() -> None:
    """A number has no entries; a missing key is reported as such."""
    with pytest.raises(ExpressionError, match="'size' is 4, which has no entries"):
        CONFIG.value_of({"count": "size"})
    with pytest.raises(UnknownNameError, match="other"):
        CONFIG.value_of({"count": "other"})


PATTERN = {"repeat": ["local", "local", "full"], "to": "=size + 3"}


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ({"period": "types"}, 3),
        ({"period": "sizes"}, 2),
        ({"item": "types", "at": -2}, "full"),
        ({"item": "labels", "at": "1"}, "dog"),
        ({"item": "sizes", "at": "=size - 3"}, 5),
        ({"by": {"period": "types"}, "cases": {"1": "same", "3": "thirds"}}, "thirds"),
        ({"by": "=size == 4", "cases": {"true": 1, "false": 0}}, 1),
        (PATTERN, ["local", "local", "full", "local", "local", "full", "local"]),
    ],
)
def test_lists_of_layers(written: object, wanted: object) -> None:
    """The list has a pattern of three, of which the last is cut off."""
    assert CONFIG.value_of(written) == wanted


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ({"item": "sizes", "at": 2}, "'sizes' has no entry 2"),
        ({"item": "sizes", "at": "first"}, "'sizes' has no entry first"),
        ({"period": "size"}, "'size' is 4, which has no entries"),
        ({"repeat": ["a"], "to": -1}, "-1 is not a number of layers"),
        ({"repeat": ["a"], "to": "=10**9"}, "1000000000 is not a number of layers"),
        ({"repeat": [], "to": 3}, "3 is not a number of layers"),
        ({"by": {"period": "types"}, "cases": {"1": 1}}, "types is 3, but only 1 are supported"),
    ],
)
def test_a_list_that_does_not_fit_says_why(written: object, problem: str) -> None:
    """As an error of the value."""
    with pytest.raises(ExpressionError, match=problem):
        CONFIG.value_of(written)
