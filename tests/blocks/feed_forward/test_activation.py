"""Activations and pooling, by hand and against torch's modules."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from torch import nn
from weft.blocks.feed_forward.feed_forward_module import ACTIVATIONS
from weft.blocks.params import Activation as ActivationName
from weft.blocks.pooling.pool_module import Pool
from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse
from weft.specs.expressions import evaluate
from weft.specs.load import loaded

from ..single_node import computed, findings_of, spec_of

TORCH = {
    "relu": nn.ReLU(),
    "gelu": nn.GELU(),
    "gelu_tanh": nn.GELU(approximate="tanh"),
    "silu": nn.SiLU(),
    "tanh": nn.Tanh(),
    "sigmoid": nn.Sigmoid(),
    "elu": nn.ELU(),
    "leaky_relu": nn.LeakyReLU(),
    "softplus": nn.Softplus(),
    "mish": nn.Mish(),
    "hard_swish": nn.Hardswish(),
    "identity": nn.Identity(),
}


@pytest.mark.parametrize("name", TORCH)
def test_an_activation_is_that_of_torch(name: str) -> None:
    """Each equals torch's module of that name."""
    x = torch.linspace(-4, 4, 33)

    assert torch.equal(ACTIVATIONS[name](x), TORCH[name](x))


def test_squared_relu_and_quick_gelu_follow_their_formulas() -> None:
    """max(0, x)^2 and x sigmoid(1.702 x), which torch does not have as modules."""
    x = torch.tensor([-2.0, 0.5, 3.0])

    assert ACTIVATIONS["squared_relu"](x).tolist() == [0.0, 0.25, 9.0]
    wanted = [value / (1 + math.exp(-1.702 * value)) for value in x.tolist()]
    torch.testing.assert_close(ACTIVATIONS["quick_gelu"](x), torch.tensor(wanted))


def test_every_activation_of_a_spec_has_a_function() -> None:
    """The names that the contracts accept are those of the table."""
    assert {*get_args(ActivationName)} == {*ACTIVATIONS} == {*TORCH, "squared_relu", "quick_gelu"}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_formula_has_the_activation_that_a_param_chooses(name: str) -> None:
    """As the same function of the feed-forward block, written out or by a name of its own."""
    x = torch.linspace(-4, 4, 33, dtype=torch.float64)[None]
    written = {"y": f"2 * {name}(x)" if name != "identity" else "2 * x"}
    chosen = {"y": "2 * f(x)", "functions": {"f": name}}

    one, other = (
        computed(spec_of("elementwise@1", {"x": "f[B 33]"}, **p), x=x) for p in (written, chosen)
    )

    assert torch.equal(one, other)
    torch.testing.assert_close(one, 2 * ACTIVATIONS[name](x))


@pytest.mark.parametrize("x", [-3.5, -0.2, 0.0, 1.5, 4.0])
@pytest.mark.parametrize("name", ["squared_relu", "quick_gelu", "leaky_relu", "mish", "hard_swish"])
def test_a_param_is_computed_with_the_same_functions(name: str, x: float) -> None:
    """The value of an expression is that of torch's function."""
    expected = ACTIVATIONS[name](torch.tensor(x, dtype=torch.float64)).item()

    assert evaluate(f"{name}(x)", {"x": x}) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("functions", "problem"),
    [
        ({"g": "gelu"}, "'functions' has 'g', which 'f(x)' does not call"),
        ({"f": "sine"}, "functions"),
        ({"relu": "gelu"}, "'relu' is a function already"),
        ({}, "f"),
    ],
)
def test_a_function_that_is_not_one_is_found(functions: dict[str, str], problem: str) -> None:
    """Names without a call, functions that do not exist, and names that are taken."""
    findings = findings_of(spec_of("elementwise@1", {"x": "f[B 8]"}, y="f(x)", functions=functions))

    assert any(f.code == "P01" and problem in f.problem for f in findings), findings


ROWS = torch.tensor([[[1.0, 9.0], [2.0, -8.0], [6.0, 7.0]], [[1.0, 9.0], [2.0, -8.0], [6.0, 7.0]]])
MASK = torch.tensor([[True, True, False], [False, True, True]])


@pytest.mark.parametrize(
    ("kind", "masked", "whole"),
    [
        ("first", [[1.0, 9.0], [2.0, -8.0]], [1.0, 9.0]),
        ("last", [[2.0, -8.0], [6.0, 7.0]], [6.0, 7.0]),
        ("mean", [[1.5, 0.5], [4.0, -0.5]], [3.0, 8 / 3]),
        ("max", [[2.0, 9.0], [6.0, 7.0]], [6.0, 9.0]),
    ],
)
def test_a_sequence_becomes_one_vector(
    kind: str, masked: list[list[float]], whole: list[float]
) -> None:
    """By hand, with padding at either end, without padding, and fully masked."""
    block = Pool(kind)

    torch.testing.assert_close(block(ROWS, MASK), torch.tensor(masked))
    torch.testing.assert_close(block(ROWS)[1], torch.tensor(whole))
    assert block(ROWS, torch.zeros_like(MASK)).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_negative_numbers_are_not_below_padding() -> None:
    """The maximum covers unmasked positions only; padding does not count as zero."""
    found = Pool("max")(-ROWS, MASK)

    assert found.tolist() == [[-1.0, 8.0], [-2.0, 8.0]]


def test_a_pool_over_the_step_axis_gets_no_help_about_causal() -> None:
    """Pooling has no `causal` param, so the help suggests another input."""
    spec = {
        "format": 1,
        "name": "one",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]"},
        "outputs": {"y": "pool.y"},
        "nodes": {"pool": {"use": "pool@1", "in": {"x": "x"}}},
        "step": {"axis": "T"},
    }

    _, findings = analyse(loaded(spec).form, registry())

    assert [(f.problem, f.help) for f in findings] == [
        (
            "the graph cannot be decoded along T: pool@1 reads later positions of T",
            "wire it to values without T",
        )
    ]
