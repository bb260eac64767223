"""Shifts against lists, in both directions and for every kind."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from weft.runtime.prove.prove import prove

from ..single_node import computed, findings_of, graph_of, spec_of, type_of

pytestmark = pytest.mark.exact

IDS = torch.tensor([[5, 6, 7, 2, 0], [8, 9, 2, 0, 0]])
MASK = IDS != 0


def shifted(row: list[Any], by: int, fill: Any) -> list[Any]:
    """Return a shifted row, position by position."""
    length = len(row)
    return [row[t - by] if 0 <= t - by < length else fill for t in range(length)]


@pytest.mark.parametrize("by", [1, 2, -1, -3, 7, -7])
@pytest.mark.parametrize(
    ("type_", "params", "right", "left"),
    [
        ("ids:11[B T]", {}, 3, 0),
        ("ids:11[B T]", {"fill": 10}, 10, 10),
        ("label:11[B T]", {}, -1, -1),
        ("mask[B T]", {}, False, False),
        ("mask[B T]", {"fill": True}, True, True),
        ("f[B T]", {"axis": "T"}, 0.0, 0.0),
        ("f[B T]", {"axis": "T", "fill": 0.5}, 0.5, 0.5),
    ],
)
def test_a_shift_of_any_kind_is_that_of_a_list(
    type_: str,
    params: dict[str, Any],
    right: float,
    left: float,
    by: int,
) -> None:
    """Also by more positions than there are; the type stays, and the fill has a default by kind."""
    spec = spec_of("shift@1", {"x": type_}, by=by, **params)
    x = MASK if type_[0] == "m" else IDS.float() if type_[0] == "f" else IDS

    y = computed(spec, x=x)

    fill = right if by > 0 else left
    assert y.tolist() == [shifted(row, by, fill) for row in x.tolist()]
    assert y.dtype == x.dtype
    assert type_of(spec) == type_


def test_a_shift_to_the_left_does_not_read_padding() -> None:
    """Where the mask is false, the fill takes the place of the values; by hand."""
    x = torch.arange(1.0, 11.0).view(2, 5, 1)
    spec = spec_of("shift@1", {"x": "f[B T 1]", "mask": "mask[B T]"}, by=-1, fill=-5)

    y = computed(spec, x=x, mask=MASK)

    assert y[..., 0].tolist() == [[2.0, 3.0, 4.0, -5.0, -5.0], [7.0, 8.0, -5.0, -5.0, -5.0]]


def test_a_decoder_reads_what_translation_feeds() -> None:
    """The beginning token comes first, and the last id is not read."""
    y = computed(spec_of("shift@1", {"x": "ids:11[B T]"}), x=IDS)

    assert y.tolist() == [[3, 5, 6, 7, 2], [3, 8, 9, 2, 0]]


@pytest.mark.parametrize(
    ("types", "params", "code", "problem"),
    [
        ({"x": "ids:11[B T]"}, {"by": 0}, "P02", "by is 0, so nothing is shifted"),
        ({"x": "ids:11[B T]"}, {"fill": 11}, "P02", "fill is 11, but ids are from 0 to 10"),
        ({"x": "ids:11[B T]"}, {"fill": -1}, "P02", "fill is -1, but ids are from 0 to 10"),
        ({"x": "ids:3[B T]"}, {}, "P02", "fill is 3, but ids are from 0 to 2"),
        ({"x": "ids:11[B T]"}, {"fill": 0.5}, "P02", "the fill of ids is an integer, not 0.5"),
        ({"x": "label:4[B T]"}, {"fill": -2}, "P02", "label are from -1 to 3"),
        ({"x": "mask[B T]"}, {"fill": 3}, "P02", "the fill of a mask is true or false"),
        ({"x": "f[B 8]"}, {}, "T04", "no time axis after that of the batch"),
        ({"x": "f[B T 8]"}, {"axis": "S"}, "T04", "has no axis S"),
        ({"x": "f[B T 8]", "mask": "mask[B T]"}, {}, "N03", "no port 'mask'"),
        ({"x": "f[B T 8]", "mask": "mask[B S]"}, {"by": -1}, "T03", "mask"),
        ({"x": "f[B T 8]"}, {"fill": "left"}, "P01", "fill"),
    ],
)
def test_an_impossible_shift_is_found(
    types: dict[str, str],
    params: dict[str, Any],
    code: str,
    problem: str,
) -> None:
    """Each mistake has its code, its place, both sides, and a way out."""
    findings = findings_of(spec_of("shift@1", types, **params))

    finding = next(finding for finding in findings if finding.code == code)
    assert problem in " ".join([finding.problem, *finding.evidence])
    assert finding.help or finding.evidence
    assert finding.at.startswith("/nodes/node")


def test_a_shift_to_the_left_cannot_decode() -> None:
    """It reads the position that decoding is to write; one to the right can."""
    for by, codes in ((1, []), (4, []), (-1, ["D01"])):
        spec = {**spec_of("shift@1", {"x": "f[B T 8]"}, by=by), "step": {"axis": "T"}}

        assert [finding.code for finding in findings_of(spec)] == codes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("types", "params"),
    [
        ({"x": "f[B T 4]"}, {"by": 2}),
        ({"x": "ids:9[B T]"}, {}),
        ({"x": "f[B T 4]", "mask": "mask[B T]"}, {"by": -2}),
    ],
)
def test_a_shift_has_the_properties_of_its_spec(
    types: dict[str, str], params: dict[str, Any]
) -> None:
    """Steps, causality, padding, gradients and saving are proven on random inputs."""
    spec = spec_of("shift@1", types, **params)
    graph = graph_of({**spec, "step": {"axis": "T"}} if params.get("by", 1) > 0 else spec)
    assert graph is not None

    proof = prove(graph, skip=["compiled"])
    assert proof.passed, str(proof)
