"""Figures of the paper computed from the shipped specs; table 3 has a separate file."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.graph import Graph
from weft.runtime.codegen.build import build_empty
from weft.runtime.train.recipe.schedule import of_paper, peak_of, share_of_peak
from weft.specs.load import load


def graph(name: str, **params: Any) -> Graph:
    """Return a shipped spec, checked, with some params set."""
    return check(load(name).form, registry(), params)


def test_base_at_37000_by_hand() -> None:
    """One shared matrix, and biases on every projection but the last.

    attention     4 * 512^2 + 4 * 512            = 1050624
    feed-forward  2 * 512 * 2048 + 2048 + 512    = 2099712
    norm          2 * 512                        = 1024
    encoder       1050624 + 2099712 + 2 * 1024   = 3152384
    decoder       2 * 1050624 + 2099712 + 3072   = 4204032
    all           37000 * 512 + 6 * (both)       = 63082496
    """
    assert graph("transformer-base").parameters() == 63_082_496


def test_big_at_37000_by_hand() -> None:
    """Width 1024: layers of 12596224 and 16796672, and a matrix of 37888000."""
    assert graph("transformer-big").parameters() == 6 * (12_596_224 + 16_796_672) + 37_888_000


def test_tiny_at_10000_by_hand() -> None:
    """Width 128, 4 + 4 layers of 132480 and 198784, and a matrix of 1280000."""
    assert graph("transformer-tiny").parameters() == 4 * (132_480 + 198_784) + 1_280_000
    assert graph("transformer-tiny").parameters() == 2_605_056


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("transformer-base", 63_082_496),
        ("transformer-big", 214_245_376),
        ("transformer-tiny", 2_605_056),
    ],
)
def test_torch_counts_the_same(name: str, count: int) -> None:
    """The blocks' formulas agree with the modules; a shared matrix counts once."""
    model = build_empty(graph(name), device="meta")

    assert sum(weight.numel() for weight in model.parameters()) == count
    assert {str(weight.device) for weight in model.parameters()} == {str(torch.device("meta"))}


@pytest.mark.parametrize(
    ("name", "peak"), [("transformer-base", 6.99e-4), ("transformer-big", 4.94e-4)]
)
def test_the_learning_rate_peaks_where_section_5_3_puts_it(name: str, peak: float) -> None:
    """d_model^-0.5 * 4000^-0.5, at update 4000."""
    schedule = of_paper()
    shares = [share_of_peak(schedule, update, 100_000) for update in (3999, 4000, 4001)]

    rates = [peak_of(schedule, graph(name).params) * share for share in shares]

    assert rates[1] == pytest.approx(peak, abs=0.005e-4)
    assert rates[1] == max(rates)
