"""Concatenation against Python's lists, along every axis and for every kind."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ..single_node import computed, findings_of, spec_of, type_of

pytestmark = pytest.mark.exact


def nested(*shape: int, start: int = 0) -> Tensor:
    """Return consecutive numbers."""
    count = int(torch.tensor(shape).prod())
    return torch.arange(start, start + count).view(*shape)


@pytest.mark.parametrize(
    ("types", "params", "type_"),
    [
        ({"x": "ids:30[B S]", "z": "ids:90[B T]"}, {"axis": "time"}, "ids:90[B S+T]"),
        ({"x": "ids:30[B S]", "z": "ids:90[B T]"}, {"axis": "T"}, "ids:90[B S+T]"),
        ({"x": "ids:90[B T]", "z": "ids:90[B T]"}, {"axis": "T"}, "ids:90[B 2*T]"),
        ({"x": "ids:90[B 4]", "z": "ids:90[B T]"}, {"axis": "T"}, "ids:90[B T+4]"),
        ({"x": "mask[B S]", "z": "mask[B T]"}, {"axis": "time"}, "mask[B S+T]"),
        ({"x": "label:9[B S]", "z": "label:9[B T]"}, {"axis": "time"}, "label:9[B S+T]"),
        (
            {"x": "mask[B S]", "z": "mask[B T]", "w": "mask[B 2]"},
            {"axis": "S", "names": ["w", "x", "z"]},
            "mask[B S+T+2]",
        ),
    ],
)
def test_positions_of_any_kind_are_joined_as_lists(
    types: dict[str, str],
    params: dict[str, Any],
    type_: str,
) -> None:
    """Rows are added as lists, in the order of `names`, and the lengths add up."""
    sizes = {"S": 3, "T": 4, "2": 2, "4": 4}
    values = {}
    for index, (name, text) in enumerate(types.items()):
        numbers = nested(2, sizes[text[:-1].split()[-1]], start=10 * index)
        values[name] = numbers % 3 > 0 if text.startswith("mask") else numbers
    spec = spec_of("concatenate@1", types, **params)

    y = computed(spec, **values)

    order = params.get("names", ["x", "z"])
    rows = [[v for name in order for v in values[name][b].tolist()] for b in (0, 1)]
    assert y.tolist() == rows
    assert type_of(spec) == type_


@pytest.mark.parametrize(
    ("types", "params", "type_"),
    [
        ({"x": "f[B T 3]", "z": "f[B T 2]"}, {}, "f[B T 5]"),
        ({"z": "f[B T 2]", "x": "f[B T 3]"}, {}, "f[B T 5]"),
        ({"x": "f[B 3]", "z": "f[B 2]"}, {}, "f[B 5]"),
        ({"x": "f[B T 3]", "z": "f[T 2]"}, {}, "f[B T 5]"),
        ({"x": "f[B S 3]", "z": "f[B T 3]"}, {"axis": "time"}, "f[B S+T 3]"),
        ({"x": "f[2 3]", "z": "f[B T 3]"}, {"axis": "time"}, "f[B T+2 3]"),
        ({"x": "f[2 B T 3]", "z": "f[1 B T 3]"}, {"axis": "layer"}, "f[3 B T 3]"),
    ],
)
def test_vectors_are_joined_along_each_axis(
    types: dict[str, str],
    params: dict[str, str],
    type_: str,
) -> None:
    """A loop over the indices of the result finds each element in one of the values."""
    spec = spec_of("concatenate@1", types, **params)
    sizes = {"B": 2, "T": 4, "S": 5, "1": 1, "2": 2, "3": 3}
    x, z = (torch.randn([sizes[axis] for axis in types[name][2:-1].split()]) for name in ("x", "z"))

    y = computed(spec, x=x, z=z)

    assert type_of(spec) == type_
    along = {"time": y.dim() - 2, "layer": 0}.get(params.get("axis", ""), y.dim() - 1)
    for index in torch.ones_like(y).nonzero().tolist():
        here, length = list(index), x.shape[along - y.dim()]
        value = x if here[along] < length else z
        here[along] -= 0 if value is x else length
        assert y[tuple(index)] == value[tuple(here[y.dim() - value.dim() :])]


@pytest.mark.parametrize(
    ("types", "params", "code", "problem"),
    [
        ({"x": "f[B T 8]", "z": "ids:9[B T]"}, {}, "T02", "'z' is of kind ids, but 'x' of kind f"),
        ({"x": "f[B T 8]", "z": "f[B S 8]"}, {}, "T03", "'z' has S where 'x' has T"),
        ({"x": "f[B T 8]", "z": "f[B S 4]"}, {"axis": "time"}, "T03", "'z' has 4 where 'x' has 8"),
        ({"x": "f[B T 8]", "z": "f[8]"}, {}, "T04", "'z' has 1 axes, but 'x' has 3"),
        ({"x": "f[B T 8]", "z": "f[T 8]"}, {"axis": "B"}, "T04", "'z' has 2 axes, but 'x' has 3"),
        ({"x": "f[B T 8]", "z": "f[B T 8]"}, {"axis": "S"}, "T04", "which has no axis S"),
        ({"x": "ids:9[B T]", "z": "ids:9[B T]"}, {}, "T04", "which has no width"),
        ({"x": "f[B T 8]"}, {}, "W01", "port 'z'"),
        ({"x": "f[B T 8]", "z": "f[B T 8]", "w": "f[B T 8]"}, {}, "N03", "no port 'w'"),
        ({"x": "f[B T 8]"}, {"names": ["x", "x"]}, "P01", "a name occurs twice"),
        ({"x": "f[B T 8]"}, {"names": ["x"]}, "P01", "names"),
    ],
)
def test_an_impossible_concatenation_is_found(
    types: dict[str, str],
    params: dict[str, Any],
    code: str,
    problem: str,
) -> None:
    """Each mistake has its code, its place, both sides, and a way out."""
    findings = findings_of(spec_of("concatenate@1", types, **params))

    finding = next(finding for finding in findings if finding.code == code)
    assert problem in " ".join([finding.problem, *finding.evidence])
    assert finding.help
    assert finding.at.startswith("/nodes/node")
