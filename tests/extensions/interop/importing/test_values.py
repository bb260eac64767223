"""Values of a table that are neither numbers nor strings of the configuration."""

from __future__ import annotations

import pytest
from weft.extensions.interop.importing.config import Configuration
from weft.runtime.spec.check import graph_of
from weft.specs.expressions import ExpressionError, UnknownNameError
from weft.specs.load import loaded

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
        ({"by": "size", "cases": {"5": "five", "*": "=size + 1"}}, 5),
        ({"by": "size", "cases": {"4": "four", "*": "other"}}, "four"),
        ({"kinds": "types", "kind": "full"}, [n in (2, 5) for n in range(7)]),
        ({"kinds": "sizes", "kind": "=size"}, [True, False]),
        ({"marks": "sizes", "to": 6}, [False, False, False, False, True, True]),
        ({"marks": "sizes", "to": "=size"}, [False] * 4),
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
        ({"kinds": "size", "kind": 4}, "'size' is 4, which has no entries"),
        ({"marks": "sizes", "to": -1}, "-1 is not a number of layers"),
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


LAYERS = {
    "format": 1,
    "name": "layers",
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"x": "f[B T 4]"},
    "outputs": {"y": "stack.x"},
    "blocks": {
        name: {
            "inputs": {"x": "f[B T 4]"},
            "outputs": {"x": "map.y"},
            "nodes": {
                "map": {"use": "feed_forward@1", "in": {"x": "x"}, "params": {"d_ff": width}}
            },
        }
        for name, width in (("narrow", 4), ("broad", 8))
    },
    "nodes": {
        "stack": {
            "repeat": "=layers",
            "block": "narrow",
            "carry": ["x"],
            "in": {"x": "x"},
            "instead": {"=wide": "broad"},
        }
    },
}


@pytest.mark.parametrize(
    ("wide", "expected"),
    [
        ({"kinds": "types", "kind": "full"}, [4, 4, 8, 4, 4, 8, 4]),
        ({"marks": "sizes", "to": 7}, [4, 4, 4, 4, 8, 8, 4]),
        ({"repeat": [1, 0], "to": 7}, [8, 4, 8, 4, 8, 4, 8]),
    ],
)
def test_lists_of_the_configuration_choose_the_templates_of_layers(
    wide: object, expected: list[int]
) -> None:
    """As kinds, as numbers of layers, or as 0 and 1."""
    form = {**LAYERS, "params": {"wide": CONFIG.value_of(wide), "layers": 7}}

    weights = graph_of(loaded(form)).weights()

    assert [weights[f"stack.{n}.map.inner.weight"][0] for n in range(7)] == expected
