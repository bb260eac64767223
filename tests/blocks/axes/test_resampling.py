"""Pooled neighbors and repeated positions, against loops over lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ..single_node import computed, findings_of, results_of, spec_of, type_of

POOLS: dict[str, Callable[[list[float]], float]] = {
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "mean": lambda values: sum(values) / len(values),
    "max": max,
}


@pytest.mark.parametrize("kind", POOLS)
@pytest.mark.parametrize("masked", [False, True], ids=["no padding", "padding"])
@pytest.mark.parametrize("every", [2, 3])
def test_neighbors_become_one_vector(kind: str, every: int, *, masked: bool) -> None:
    """Only positions that count are pooled; a group of padding gives zeros and is padding."""
    x = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0]]).bool()
    types = {"x": f"f[B {every}*T 4]"} | ({"mask": f"mask[B {every}*T]"} if masked else {})
    outputs = ("y", "mask") if masked else ("y",)
    spec = spec_of("pool@1", types, outputs, kind=kind, every=every)

    y = results_of(spec, x=x, **({"mask": mask} if masked else {}))

    assert type_of(spec) == "f[B T 4]"
    for b in range(2):
        for t in range(6 // every):
            group = range(every * t, every * t + every)
            counts = [s for s in group if mask[b, s] or not masked]
            if masked:
                assert bool(y["mask"][b, t]) == bool(counts)
            for d in range(4):
                expected = POOLS[kind]([x[b, s, d].item() for s in counts]) if counts else 0.0
                assert y["y"][b, t, d].item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("type_", "params", "result"),
    [
        ("ids:9[B T]", {"times": 2}, "ids:9[B 2*T]"),
        ("mask[B T]", {"times": 3, "axis": "T"}, "mask[B 3*T]"),
        ("label:9[B T+1]", {"times": 2}, "label:9[B 2*T+2]"),
        ("f[B 2*T]", {"times": 4, "axis": "2*T"}, "f[B 8*T]"),
        ("ids:9[B 6]", {"times": 2}, "ids:9[B 12]"),
    ],
)
def test_positions_of_any_kind_are_repeated(
    type_: str, params: dict[str, Any], result: str
) -> None:
    """Each as often as `times` says, in its place."""
    spec = spec_of("upsample@1", {"x": type_}, **params)
    x = torch.tensor([[3, 5, 6, 2, 0, 0], [3, 7, 8, 0, 4, 2]])
    x = x > 2 if type_.startswith("mask") else x.float() if type_.startswith("f") else x

    y = computed(spec, x=x)

    assert y.tolist() == [[v for v in row for _ in range(params["times"])] for row in x.tolist()]
    assert type_of(spec) == result


@pytest.mark.parametrize("use", ["pool@1", "slice@1"])
def test_pooling_then_repeating_gives_the_length_back(use: str) -> None:
    """The skip connection of a U-Net adds values of one type."""
    params = {"every": 2} if use == "pool@1" else {"step": 2}
    spec = spec_of(use, {"x": "f[B 2*T 4]"}, **params)
    spec["nodes"]["up"] = {"use": "upsample@1", "in": {"x": "node.y"}, "params": {"times": 2}}
    spec["outputs"] = {"y": "up.y"}

    assert type_of(spec) == spec["inputs"]["x"]


@pytest.mark.parametrize(
    ("use", "types", "params", "code", "text"),
    [
        ("pool@1", {"x": "f[B T 4]"}, {"every": 2}, "T03", "such as 2*T, a multiple to which"),
        ("pool@1", {"x": "f[B 3*T 4]"}, {"every": 2}, "T03", "axis is '2*t' but 3*T"),
        ("pool@1", {"x": "f[B 2*T 4]", "mask": "mask[B T]"}, {"every": 2}, "T03", "2*T"),
        ("pool@1", {"x": "f[B 2*T 4]"}, {"every": 1}, "P01", "every"),
        ("pool@1", {"x": "ids:9[B 2*T]"}, {"every": 2}, "T02", "kind is ids"),
        ("upsample@1", {"x": "f[B T 4]"}, {"times": 1}, "P01", "times"),
        ("upsample@1", {"x": "f[B T 4]"}, {}, "W07", "times"),
        ("upsample@1", {"x": "f[B 4]"}, {"times": 2}, "T04", "no time axis"),
        ("upsample@1", {"x": "ids:9[B T]"}, {"times": 2, "axis": "width"}, "T04", "no width"),
    ],
)
def test_an_impossible_length_is_found(
    use: str,
    types: dict[str, str],
    params: dict[str, Any],
    code: str,
    text: str,
) -> None:
    """Each mistake has its code, its place, and a way out."""
    findings = findings_of(spec_of(use, types, **params))

    finding = next(finding for finding in findings if finding.code == code)
    assert text in " ".join([finding.problem, *finding.evidence, finding.help])
    assert finding.at.startswith("/nodes/node")


@pytest.mark.parametrize("use", ["pool@1", "upsample@1"])
def test_a_resampled_step_axis_cannot_decode(use: str) -> None:
    """Steps along T would have to be steps along another number of positions."""
    params = {"every": 2} if use == "pool@1" else {"times": 2}
    types = {"x": "f[B 2*T 4]" if use == "pool@1" else "f[B T 4]"}
    spec = {**spec_of(use, types, **params), "step": {"axis": "T"}}

    assert [finding.code for finding in findings_of(spec)] == ["D01"]
