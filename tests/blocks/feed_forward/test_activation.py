"""Activations and pooling, by hand and against torch's modules."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from torch import nn
from weft.blocks.feed_forward.activation_module import Activation
from weft.blocks.feed_forward.feed_forward_module import ACTIVATIONS
from weft.blocks.params import Activation as ActivationName
from weft.blocks.pooling.pool_module import Pool
from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse
from weft.specs.load import loaded

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

    assert torch.equal(Activation(name)(x), TORCH[name](x))


def test_squared_relu_and_quick_gelu_follow_their_formulas() -> None:
    """max(0, x)^2 and x sigmoid(1.702 x), which torch does not have as modules."""
    x = torch.tensor([-2.0, 0.5, 3.0])

    assert Activation("squared_relu")(x).tolist() == [0.0, 0.25, 9.0]
    wanted = [value / (1 + math.exp(-1.702 * value)) for value in x.tolist()]
    torch.testing.assert_close(Activation("quick_gelu")(x), torch.tensor(wanted))


def test_every_activation_of_a_spec_has_a_function() -> None:
    """The names that the contracts accept are those of the table."""
    assert {*get_args(ActivationName)} == {*ACTIVATIONS} == {*TORCH, "squared_relu", "quick_gelu"}


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
