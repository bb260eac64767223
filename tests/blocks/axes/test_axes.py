"""Concatenation, slices, shifts and resampling, against lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from weft.runtime.prove.prove import prove

from ..single_node import computed, findings_of, graph_of, results_of, spec_of, type_of


def nested(*shape: int, start: int = 0) -> Tensor:
    """Return consecutive numbers."""
    count = int(torch.tensor(shape).prod())
    return torch.arange(start, start + count).view(*shape)


@pytest.mark.exact
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


@pytest.mark.exact
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


@pytest.mark.exact
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


X = torch.arange(2 * 6 * 4.0).view(2, 6, 4)
IDS = torch.tensor([[3, 5, 6, 2, 0, 0], [3, 7, 8, 9, 4, 2]])


@pytest.mark.exact
@pytest.mark.parametrize(
    ("params", "type_"),
    [
        ({"index": 0}, "[B]"),
        ({"index": -2}, "[B]"),
        ({"start": 2}, "[B T-2]"),
        ({"start": -4}, "[B 4]"),
        ({"start": -4, "stop": -1}, "[B 3]"),
        ({"stop": 3}, "[B 3]"),
        ({"stop": -1}, "[B T-1]"),
        ({"start": 1, "stop": -1}, "[B T-2]"),
        ({"start": 1, "stop": 6, "step": 2}, "[B 3]"),
        ({"start": -5, "step": 3}, "[B 2]"),
        ({"axis": "T", "start": -1}, "[B 1]"),
    ],
)
@pytest.mark.parametrize("kind", ["ids:11", "mask", "label:11", "f"])
def test_a_slice_of_any_kind_is_that_of_a_list(
    params: dict[str, Any], type_: str, kind: str
) -> None:
    """Rows are cut as Python cuts lists, and the type has the length of the result."""
    spec = spec_of("slice@1", {"x": f"{kind}[B T]"}, **params)
    x = IDS > 2 if kind == "mask" else IDS.float() if kind == "f" else IDS

    y = computed(spec, x=x)

    part = slice(params.get("start", 0), params.get("stop"), params.get("step"))
    rows: list[Any] = [
        row[params["index"]] if "index" in params else row[part] for row in x.tolist()
    ]
    assert y.tolist() == rows
    assert type_of(spec) == kind + type_


@pytest.mark.exact
@pytest.mark.parametrize(
    ("x", "params", "y", "expected"),
    [
        ("f[B T 4]", {"start": -2}, "f[B 2 4]", X[:, 4:]),
        ("f[B T 4]", {"axis": "width", "stop": 1}, "f[B T 1]", X[..., :1]),
        ("f[B T 4]", {"axis": "width", "start": -3, "step": 2}, "f[B T 2]", X[..., [1, 3]]),
        ("f[B T 4]", {"axis": "4", "start": 1}, "f[B T 3]", X[..., 1:]),
        ("f[B T 4]", {"axis": "width", "index": -1}, "f[B T]", X[..., -1]),
        ("f[B T 4]", {"axis": "4", "index": 1}, "f[B T]", X[..., 1]),
        ("f[B 2*T 4]", {"step": 2}, "f[B T 4]", X[:, [0, 2, 4]]),
        ("f[B 2*T 4]", {"start": 1, "step": 2}, "f[B T 4]", X[:, [1, 3, 5]]),
        ("f[B 2*T 4]", {"stop": -1, "step": 2}, "f[B T 4]", X[:, [0, 2, 4]]),
        ("f[B 2*T 4]", {"start": 2, "step": 2}, "f[B T-1 4]", X[:, [2, 4]]),
        ("f[B 3*T 4]", {"axis": "3*T", "step": 3}, "f[B T 4]", X[:, [0, 3]]),
        ("f[B T+1 4]", {"start": 1}, "f[B T 4]", X[:, 1:]),
        ("f[2 B 4]", {"axis": "layer", "index": 1}, "f[B 4]", X[1]),
        ("f[2 B 4]", {"axis": "B", "start": 1}, "f[2 B-1 4]", X[:, 1:]),
    ],
)
def test_a_slice_takes_any_axis(
    x: str,
    params: dict[str, Any],
    y: str,
    expected: Tensor,
) -> None:
    """The elements are listed by hand."""
    spec = spec_of("slice@1", {"x": x}, **params)

    assert torch.equal(computed(spec, x=X), expected)
    assert type_of(spec) == y


@pytest.mark.exact
@pytest.mark.parametrize(
    ("x", "params", "code", "problem"),
    [
        ("f[B T 4]", {"index": 0, "start": 1}, "P02", "'index' excludes 'start'"),
        ("f[B T 4]", {"start": 3, "stop": 3}, "P02", "start is 3 and stop is 3, so nothing"),
        ("f[B T 4]", {"stop": 0}, "P02", "nothing is selected"),
        ("f[B T 4]", {"start": -1, "stop": -1}, "P02", "nothing is selected"),
        ("f[B T 4]", {"start": -2, "stop": 5}, "T03", "depends on how long T is"),
        ("f[B T 4]", {"step": 2}, "T03", "with a step of 2, the length of T is"),
        ("f[B T+1 4]", {"step": 2}, "T03", "with a step of 2, the length of T+1 is"),
        ("f[B T 4]", {"axis": "width", "stop": 9}, "P02", "has 4 elements, and none from 0 to 8"),
        ("f[B T 4]", {"axis": "width", "start": -5}, "P02", "none from -1 to 3"),
        ("f[B 9 4]", {"start": 10}, "P02", "the axis has 9 elements, and none from 10 to 8"),
        ("f[B 9 4]", {"index": -10}, "P02", "the axis has 9 elements, and none with index -10"),
        ("f[9 B T 4]", {"axis": "layer", "index": 9}, "P02", "none with index 9"),
        ("f[B T 4]", {"axis": "S"}, "T04", "which has no axis S"),
        ("f[B T T]", {"axis": "T"}, "T04", "which has more than one axis T"),
        ("f[B 4]", {"index": 0}, "T04", "which has no time axis after that of the batch"),
        ("ids:9[B T]", {"axis": "width"}, "T04", "which has no width"),
        ("f[B T 4]", {"axis": "T and S"}, "P01", "axis"),
    ],
)
def test_an_impossible_slice_is_found(
    x: str, params: dict[str, Any], code: str, problem: str
) -> None:
    """Each mistake has its code and place, both sides, and a way out."""
    findings = findings_of(spec_of("slice@1", {"x": x}, **params))

    finding = next(finding for finding in findings if finding.code == code)
    assert problem in finding.problem
    assert finding.help
    assert finding.at.startswith("/nodes/node")


@pytest.mark.exact
@pytest.mark.parametrize(
    ("x", "before", "y"),
    [
        ("f[B S+T 4]", "f[B S 4]", "f[B T 4]"),
        ("f[B S+T 4]", "mask[B S]", "f[B T 4]"),
        ("f[B T+2 4]", "f[2 B 2 4]", "f[B T 4]"),
        ("f[B S+T+1 4]", "f[B S+1 8]", "f[B T 4]"),
    ],
)
def test_a_slice_begins_after_the_positions_of_another_value(x: str, before: str, y: str) -> None:
    """Of 6 positions, the first 2 are those of the other value."""
    spec = spec_of("slice@1", {"x": x, "before": before})
    shape = {"f[B S 4]": (2, 2, 4), "mask[B S]": (2, 2), "f[2 B 2 4]": (2, 2, 2, 4)}
    other = torch.zeros(shape.get(before, (2, 2, 8)))
    other = other.bool() if before.startswith("mask") else other

    assert torch.equal(computed(spec, x=X, before=other), X[:, 2:])
    assert type_of(spec) == y


@pytest.mark.exact
@pytest.mark.parametrize(
    ("x", "before", "params", "code", "problem"),
    [
        ("f[B T 4]", "f[B S 4]", {}, "T03", "is T, which does not begin with the S of 'before'"),
        ("f[B T 4]", "f[B T 4]", {}, "T03", "does not begin with the T of 'before'"),
        ("f[B T+1 4]", "f[B 4]", {}, "T04", "'before' is f[B 4], which has no time axis"),
        ("f[B S+T 4]", "f[B S 4]", {"start": 1}, "P02", "'before' says where the slice begins"),
        ("f[B S+T 4]", "f[B S 4]", {"index": 1}, "P02", "'before' says where the slice begins"),
    ],
)
def test_a_slice_after_what_does_not_come_first_is_found(
    x: str,
    before: str,
    params: dict[str, int],
    code: str,
    problem: str,
) -> None:
    """Each mistake has its code and place, both sides, and a way out."""
    findings = findings_of(spec_of("slice@1", {"x": x, "before": before}, **params))

    assert [finding.code for finding in findings] == [code]
    assert problem in findings[0].problem
    assert findings[0].help
    assert findings[0].at.startswith("/nodes/node")


@pytest.mark.exact
@pytest.mark.parametrize("params", [{"index": 6}, {"stop": 7}, {"start": -7}, {"start": 6}])
def test_a_sequence_that_is_too_short_is_an_error(params: dict[str, int]) -> None:
    """Python would return fewer elements than the type says."""
    with pytest.raises(ValueError, match="there are 6 positions, but at least 7 are needed"):
        computed(spec_of("slice@1", {"x": "f[B T 4]"}, **params), x=X)


@pytest.mark.exact
def test_a_split_gives_named_parts() -> None:
    """The parts are consecutive."""
    params = {"names": ["first", "second"], "sizes": [1, 3]}

    y = results_of(spec_of("split@1", {"x": "f[B T 4]"}, ("first", "second"), **params), x=X)

    assert torch.equal(y["first"], X[..., :1])
    assert torch.equal(y["second"], X[..., 1:])


@pytest.mark.exact
@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"names": ["y", "z"], "sizes": [1, 2]}, "the sizes add up to 3, but the width is 4"),
        ({"names": ["y", "z"], "sizes": [1, 2, 1]}, "there are 2 different names and 3 sizes"),
        ({"names": ["y", "y"], "sizes": [2, 2]}, "there are 1 different names and 2 sizes"),
    ],
)
def test_an_impossible_split_is_found(params: dict[str, Any], problem: str) -> None:
    """The sizes must be those of the vectors."""
    findings = findings_of(spec_of("split@1", {"x": "f[B T 4]"}, **params))

    assert [(f.code, f.problem) for f in findings] == [("P02", f"split@1: {problem}")]


SHIFT_IDS = torch.tensor([[5, 6, 7, 2, 0], [8, 9, 2, 0, 0]])
MASK = SHIFT_IDS != 0


def shifted(row: list[Any], by: int, fill: Any) -> list[Any]:
    """Return a shifted row, position by position."""
    length = len(row)
    return [row[t - by] if 0 <= t - by < length else fill for t in range(length)]


@pytest.mark.exact
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
    x = MASK if type_[0] == "m" else SHIFT_IDS.float() if type_[0] == "f" else SHIFT_IDS

    y = computed(spec, x=x)

    fill = right if by > 0 else left
    assert y.tolist() == [shifted(row, by, fill) for row in x.tolist()]
    assert y.dtype == x.dtype
    assert type_of(spec) == type_


@pytest.mark.exact
def test_a_shift_to_the_left_does_not_read_padding() -> None:
    """Where the mask is false, the fill takes the place of the values; by hand."""
    x = torch.arange(1.0, 11.0).view(2, 5, 1)
    spec = spec_of("shift@1", {"x": "f[B T 1]", "mask": "mask[B T]"}, by=-1, fill=-5)

    y = computed(spec, x=x, mask=MASK)

    assert y[..., 0].tolist() == [[2.0, 3.0, 4.0, -5.0, -5.0], [7.0, 8.0, -5.0, -5.0, -5.0]]


@pytest.mark.exact
def test_a_decoder_reads_what_translation_feeds() -> None:
    """The beginning token comes first, and the last id is not read."""
    y = computed(spec_of("shift@1", {"x": "ids:11[B T]"}), x=SHIFT_IDS)

    assert y.tolist() == [[3, 5, 6, 7, 2], [3, 8, 9, 2, 0]]


@pytest.mark.exact
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


@pytest.mark.exact
def test_a_shift_to_the_left_cannot_decode() -> None:
    """It reads the position that decoding is to write; one to the right can."""
    for by, codes in ((1, []), (4, []), (-1, ["D01"])):
        spec = {**spec_of("shift@1", {"x": "f[B T 8]"}, by=by), "step": {"axis": "T"}}

        assert [finding.code for finding in findings_of(spec)] == codes


@pytest.mark.exact
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
