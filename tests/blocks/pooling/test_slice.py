"""Slices, splits, learned arrays and weighted sums, by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from weft.blocks.feed_forward.adapter_module import Adapter
from weft.blocks.pooling.learned_module import LearnedArray, WeightedSum
from weft.blocks.pooling.slice_module import Slice, Split
from weft.blocks.registry import registry
from weft.blocks.residual.combine_module import Multiply
from weft.graphs.checker.check import analyse
from weft.runtime.codegen.build import build
from weft.specs.load import loaded


def spec_of(use: str, params: dict[str, Any], x: str, out: str = "y") -> dict[str, Any]:
    """Return a spec with one node that reads a value of type `x`."""
    return {
        "format": 1,
        "name": "one",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": x},
        "outputs": {"y": f"node.{out}"},
        "nodes": {"node": {"use": use, "in": {"x": "x"}, "params": params}},
    }


def outcome(use: str, params: dict[str, Any], x: str) -> tuple[list[str], str]:
    """Return the findings of a spec with one node, and the type of its output."""
    graph, findings = analyse(loaded(spec_of(use, params, x)).form, registry())
    return [f"{one.code} {one.problem}" for one in findings], str(
        graph.outputs["y"] if graph else ""
    )


X = torch.arange(2 * 6 * 4.0).view(2, 6, 4)


@pytest.mark.parametrize(
    ("params", "shape", "expected"),
    [
        ({"index": 0}, "f[B 4]", X[:, 0]),
        ({"index": -1}, "f[B 4]", X[:, -1]),
        ({"start": 2}, "f[B T-2 4]", X[:, 2:]),
        ({"stop": 3}, "f[B 3 4]", X[:, :3]),
        ({"start": 1, "stop": -1}, "f[B T-2 4]", X[:, 1:-1]),
        ({"start": 1, "stop": 6, "step": 2}, "f[B 3 4]", X[:, 1:6:2]),
        ({"axis": "width", "stop": 1}, "f[B T 1]", X[..., :1]),
        ({"axis": "width", "start": 1, "step": 2}, "f[B T 2]", X[..., 1::2]),
        ({"axis": "width", "start": 1}, "f[B T 3]", X[..., 1:]),
        ({"axis": "width", "stop": -3}, "f[B T 1]", X[..., :-3]),
    ],
)
def test_a_slice_is_that_of_python(params: dict[str, Any], shape: str, expected: Tensor) -> None:
    """The values are those of `start:stop:step`, and the checker knows their shape."""
    assert outcome("slice@1", params, "f[B T 4]") == ([], shape)
    model = build(loaded(spec_of("slice@1", params, "f[B T 4]")))

    assert torch.equal(model(x=X)["y"], expected)


def test_every_second_position_halves_an_even_axis() -> None:
    """2*T positions become T; the length of an axis that may be odd is not expressible."""
    assert outcome("slice@1", {"step": 2}, "f[B 2*T 4]") == ([], "f[B T 4]")
    assert torch.equal(Slice("time", start=1, step=2)(X), X[:, 1::2])

    codes, _ = outcome("slice@1", {"step": 2}, "f[B T 4]")
    assert [code[:3] for code in codes] == ["T03"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"index": 0, "start": 1}, "'index' excludes 'start', 'stop' and 'step'"),
        ({"axis": "width", "index": 0}, "'index' removes the axis, but 'width' must stay"),
        ({"start": 3, "stop": 3}, "start is 3 and stop is 3, so nothing is selected"),
        ({"stop": 0}, "start is 0 and stop is 0, so nothing is selected"),
        ({"stop": -1, "step": 2}, "stop is -1, counted from the end, with a step of 2"),
        ({"start": 2, "step": 2}, "start is 2, but without 'stop' it must be below the step of 2"),
        (
            {"axis": "width", "stop": 9},
            "the width is 4, so it has no elements 0 to 8",
        ),
    ],
)
def test_an_impossible_slice_is_reported(params: dict[str, Any], message: str) -> None:
    """Before anything is built."""
    found, _ = outcome("slice@1", params, "f[B 2*T 4]")

    assert found == [f"P02 slice@1: {message}"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"start": 10}, "the length of the axis is 9, so it has no elements 10 to 8"),
        ({"stop": 12}, "the length of the axis is 9, so it has no elements 0 to 11"),
        ({"index": 9}, "the axis has 9 elements, and none with index 9"),
        ({"index": -10}, "the axis has 9 elements, and none with index -10"),
    ],
)
@pytest.mark.parametrize(("axis", "x"), [("time", "f[B 9 4]"), ("layer", "f[9 B T 4]")])
def test_a_slice_beyond_a_constant_axis_is_reported(
    params: dict[str, Any], message: str, axis: str, x: str
) -> None:
    """The lengths of patches and of collected layers are known before anything is built."""
    assert outcome("slice@1", {"axis": axis, **params}, x)[0] == [f"P02 slice@1: {message}"]


@pytest.mark.parametrize("block", [Slice("time", index=6), Slice("time", stop=7)])
def test_a_sequence_that_is_too_short_is_an_error(block: Slice) -> None:
    """Python would return fewer elements than the type says."""
    with pytest.raises(ValueError, match="the axis has 6 elements, but the slice needs at least 7"):
        block(X)


def test_a_split_gives_named_parts() -> None:
    """The parts are consecutive, and concatenating them gives the vectors back."""
    first, second = Split((1, 3))(X)

    assert torch.equal(first, X[..., :1])
    assert torch.equal(torch.cat([first, second], -1), X)
    params = {"names": ["first", "second"], "sizes": [1, 3]}
    model = build(loaded(spec_of("split@1", params, "f[B T 4]", "second")))
    assert torch.equal(model(x=X)["y"], second)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"names": ["y", "z"], "sizes": [1, 2]},
            "P02 split@1: the sizes add up to 3, but the width is 4",
        ),
        (
            {"names": ["y", "z"], "sizes": [1, 2, 1]},
            "P02 split@1: there are 2 different names and 3 sizes",
        ),
        (
            {"names": ["y", "y"], "sizes": [2, 2]},
            "P02 split@1: there are 1 different names and 2 sizes",
        ),
    ],
)
def test_an_impossible_split_is_reported(params: dict[str, Any], message: str) -> None:
    """The sizes must be those of the vectors."""
    assert outcome("split@1", params, "f[B T 4]")[0] == [message]


def test_a_learned_array_is_the_same_in_every_row() -> None:
    """Only the number of rows of the other value matters."""
    block = LearnedArray(3, 5)
    with torch.no_grad():
        block.initialize(torch.Generator().manual_seed(1))

    y = block(X)

    assert y.shape == (2, 3, 5)
    assert torch.equal(y[0], block.weight)
    assert torch.equal(y[1], block.weight)


def test_a_weighted_sum_by_hand() -> None:
    """Weights log 1 and log 3 give 1/4 and 3/4; the gain doubles the sum."""
    block = WeightedSum(2)
    with torch.no_grad():
        block.weight.copy_(torch.tensor([1.0, 3.0]).log())
        assert block.gain is not None
        block.gain.fill_(2.0)
    x = torch.tensor([4.0, 8.0]).view(2, 1, 1, 1)

    torch.testing.assert_close(block(x), torch.tensor([[[14.0]]]))


def test_a_weighted_sum_reads_what_a_repeat_collects() -> None:
    """The outputs of all copies, stacked along a new first axis; at first, their mean."""
    spec = {
        "format": 1,
        "name": "elmo",
        "params": {"layers": 3},
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 4]"},
        "outputs": {"y": "sum.y"},
        "blocks": {
            "layer": {
                "inputs": {"x": "f[B T 4]"},
                "outputs": {"x": "twice.y", "each": "twice.y"},
                "nodes": {"twice": {"use": "scale@1", "in": {"x": "x"}, "params": {"by": 2}}},
            }
        },
        "nodes": {
            "stack": {
                "repeat": "=layers",
                "block": "layer",
                "carry": ["x"],
                "collect": ["each"],
                "in": {"x": "x"},
            },
            "sum": {
                "use": "weighted_sum@1",
                "in": {"x": "stack.each"},
                "params": {"layers": "=layers"},
            },
        },
    }

    torch.testing.assert_close(build(loaded(spec))(x=X)["y"], X * (2 + 4 + 8) / 3)


def test_a_product_is_elementwise() -> None:
    """By hand."""
    product = Multiply()(torch.tensor([2.0, 3.0]), torch.tensor([-1.0, 0.5]))

    assert product.tolist() == [-2.0, 1.5]


def test_a_fresh_adapter_is_almost_the_identity() -> None:
    """Section 3.6 of the paper: deviation 0.01, truncated at twice that; then by hand."""
    block = Adapter(4, 2, "relu")
    with torch.no_grad():
        block.initialize(torch.Generator().manual_seed(1))
        torch.testing.assert_close(block(X), X, rtol=2e-2, atol=1e-2)
        assert 0 < block.inner.weight.abs().max() <= 0.02

        block.inner.weight.fill_(1.0)
        block.outer.weight.fill_(2.0)
    x = torch.tensor([1.0, 2.0, 3.0, -1.0])
    assert block(x).tolist() == [21.0, 22.0, 23.0, 19.0]  # 2 features of relu(5), times 2
