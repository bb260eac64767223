"""Copies that differ in numbers that follow a formula are drawn once, with the formula."""

from __future__ import annotations

from typing import Any

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.draw.diagram import diagram
from weft.graphs.draw.progressions import progression
from weft.specs.load import loaded

LAYER: dict[str, Any] = {
    "params": {"dilation": 1, "kernel": 3},
    "inputs": {"x": "f[B T 4]"},
    "outputs": {"x": "convolution.y"},
    "nodes": {
        "convolution": {
            "use": "convolution@1",
            "in": {"x": "x"},
            "params": {"d_out": 4, "kernel": "=kernel", "dilation": "=dilation"},
        }
    },
}


def drawn(copies: int, **params: Any) -> str:
    """Return the drawing of a stack of convolutions as DOT text."""
    value = {
        "format": 1,
        "name": "stack",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 4]"},
        "outputs": {"y": "stack.x"},
        "blocks": {"layer": LAYER},
        "nodes": {
            "stack": {
                "repeat": copies,
                "index": "i",
                "block": "layer",
                "carry": ["x"],
                "in": {"x": "x"},
                "params": params,
            }
        },
    }
    return str(diagram(check(loaded(value).form, registry())).source)


@pytest.mark.parametrize(
    ("values", "start", "formula"),
    [
        ([1, 2, 4], 0, "2**i"),
        ([4, 8, 16], 2, "2**i"),
        ([3, 6, 12], 0, "3*2**i"),
        ([0, 1, 2], 0, "i"),
        ([3, 5, 7], 0, "2*i + 3"),
        ([3, 5, 7], 4, "2*i - 5"),
        ([6, 4, 2], 0, "6 - 2*i"),
        ([0.3, 0.2, 0.1], 0, "0.3 - 0.1*i"),
        ([8, 4, 2], 0, "8*0.5**i"),
    ],
)
def test_the_formula_of_three_numbers(values: list[float], start: int, formula: str) -> None:
    """By hand."""
    rule = progression(values)

    assert rule is not None
    assert rule.formula(start) == formula


def test_numbers_without_a_formula() -> None:
    """Neither a sum nor a product."""
    assert progression([1, 4, 9]) is None
    assert progression([0, 0, 1]) is None


def test_copies_that_follow_a_formula_are_one_frame_with_it() -> None:
    """What is equal in all copies is written as it is."""
    source = drawn(5, dilation="=3**i")

    assert source.count("masked convolution") + source.count(">convolution<") == 1
    assert "dilation = 3**i" in source
    assert "kernel 3" in source
    assert "× 5" in source


def test_two_numbers_follow_their_own_formulas() -> None:
    """One frame has both."""
    source = drawn(4, dilation="=i+1", kernel="=2*i+1")

    assert "dilation = i + 1" in source
    assert "kernel = 2*i + 1" in source


def test_where_a_formula_ends_the_other_copies_have_a_frame_of_their_own() -> None:
    """1, 2, 4, 8, 8, 8: four copies with a formula, and two that are equal."""
    source = drawn(6, dilation="=min(2**i, 8)")

    assert source.count("dilation = 2**i") == 1
    assert source.count("dilation 8") == 1


def test_copies_without_a_formula_are_drawn_one_by_one() -> None:
    """Squares are no progression."""
    source = drawn(4, dilation="=(i+1)**2")

    assert "dilation =" not in source
    assert source.count("dilation 9") == 1


def test_many_copies_without_a_formula_are_one_frame_with_some_values() -> None:
    """A drawing does not grow with the number of copies."""
    source = drawn(12, dilation="=(i+1)**2")

    assert source.count("dilation = ") == 1
    assert "dilation = 1, 4, .., 144" in source
    assert "× 12" in source


def test_copies_that_compute_the_same_in_turn_are_a_pattern() -> None:
    """Params that do not matter, such as the number of a copy modulo two, make no difference."""
    source = drawn(12, dilation="=1 + i % 2")

    assert source.count("kernel 3") == 2
    assert "× 6" in source


def test_numbers_within_an_object_follow_a_formula_too() -> None:
    """Such as a number that a formula reads."""
    by = {"use": "elementwise@1", "in": {"x": "x"}}
    layer = {
        "params": {"factor": None},
        "inputs": {"x": "f[B T 4]"},
        "outputs": {"x": "by.y"},
        "nodes": {"by": by | {"params": {"y": "f * x", "values": {"f": "=factor"}}}},
    }
    stack = {
        "repeat": 5,
        "index": "i",
        "block": "layer",
        "carry": ["x"],
        "in": {"x": "x"},
        "params": {"factor": "=2**i"},
    }
    value = {
        "format": 1,
        "name": "factors",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 4]"},
        "outputs": {"y": "stack.x"},
        "blocks": {"layer": layer},
        "nodes": {"stack": stack},
    }

    source = str(diagram(check(loaded(value).form, registry())).source)

    assert source.count("f * x") == 1
    assert "2**i" in source
