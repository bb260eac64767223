"""Lengths of inputs on axes such as `4*S`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import weft
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from weft.graphs.ir.value_type import ValueType, parse_type
from weft.runtime.data.columns.fitting import Fitting

AXES = {"B": "batch", "S": "time", "T": "time"}
DTYPES = {"ids": torch.int64, "label": torch.int64, "mask": torch.bool, "f": torch.float32}


def fitting(types: dict[str, str], columns: dict[str, str] | None = None) -> Fitting:
    """Return what inputs of these types require.

    Args:
        types: type of each input.
        columns: time axis of the column that fills each input; default: one of its own.
    """
    inputs = {name: parse_type(text, {}, AXES)[0] for name, text in types.items()}
    graph: Any = SimpleNamespace(inputs=inputs, spec=SimpleNamespace(axes=AXES))
    filled = {
        name: ValueType(type_.kind, ("B", (columns or {}).get(name, name)))
        for name, type_ in inputs.items()
    }
    return Fitting.of(graph, filled)


def padded(types: dict[str, str], lengths: dict[str, int], **columns: str) -> dict[str, Tensor]:
    """Return inputs of ones with these lengths, after they are padded."""
    requirements = fitting(types, columns)
    assert not list(requirements.problems())
    inputs = {
        name: torch.ones(2, length, dtype=DTYPES[types[name].partition("[")[0].partition(":")[0]])
        for name, length in lengths.items()
    }
    return requirements.fit(inputs)


@pytest.mark.parametrize(
    ("axis", "length", "wanted"),
    [("S", 3, 3), ("4*S", 5, 8), ("4*S", 4, 4), ("S+1", 1, 2), ("S+1", 7, 7), ("4*S+1", 6, 9)],
)
def test_an_input_is_padded_to_the_next_length_of_its_axis(
    axis: str, length: int, wanted: int
) -> None:
    """Axes are at least 1, so `S+1` begins at 2."""
    assert padded({"x": f"ids:9[B {axis}]"}, {"x": length})["x"].size(1) == wanted


def test_padding_is_what_each_kind_calls_padding() -> None:
    """Masks are false there, labels -1, and ids the padding id."""
    types = {"ids": "ids:9[B 2*S]", "m": "mask[B 2*S]", "y": "label:3[B 2*S]", "x": "f[B 2*S]"}

    found = padded(types, dict.fromkeys(types, 1), ids="c", m="c", y="c", x="c")

    assert {name: row[0, 1].item() for name, row in found.items()} == {
        "ids": 0,
        "m": False,
        "y": -1,
        "x": 0.0,
    }


def test_one_column_on_two_axes_is_padded_to_a_common_multiple() -> None:
    """A length that is a multiple of 4 and of 6 is one of 12."""
    types = {"x": "f[B 4*S]", "x_mask": "mask[B 6*T]"}

    found = padded(types, {"x": 13, "x_mask": 13}, x="x", x_mask="x")

    assert [one.size(1) for one in found.values()] == [24, 24]


@given(st.integers(1, 40), st.integers(1, 40))
def test_columns_that_share_an_axis_are_padded_to_lengths_that_belong_together(
    x: int, y: int
) -> None:
    """Lengths `3*S` and `S+2` for the same S; the least S that has room for both."""
    found = padded({"x": "ids:9[B 3*S]", "y": "ids:9[B S+2]"}, {"x": x, "y": y})

    size = next(size for size in range(1, 99) if 3 * size >= x and size + 2 >= y)
    assert (found["x"].size(1), found["y"].size(1)) == (3 * size, size + 2)


@pytest.mark.parametrize(
    ("types", "name"),
    [
        ({"x": "f[B 4*S]", "x_mask": "mask[B 2*S]"}, "x_mask"),
        ({"x": "f[B 2*S]", "x_mask": "mask[B 2*T+1]"}, "x_mask"),
        ({"x": "ids:9[B S+T]"}, "x"),
        ({"x": "ids:9[B 9-S]"}, "x"),
    ],
)
def test_axes_that_no_length_fits_are_named(types: dict[str, str], name: str) -> None:
    """They would fail in the first update, or pad without end."""
    problems = list(fitting(types, dict.fromkeys(types, "x")).problems())

    assert [one for one, _ in problems] == [name]


def test_what_is_longer_than_a_fixed_axis_is_refused() -> None:
    """`ids[B 5]` takes 5 positions."""
    assert padded({"x": "ids:9[B 5]"}, {"x": 3})["x"].tolist() == [[1, 1, 1, 0, 0]] * 2
    with pytest.raises(weft.InputError, match="'x' has 7 positions, but its axis has 5"):
        padded({"x": "ids:9[B 5]"}, {"x": 7})
