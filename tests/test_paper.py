"""Numbers that the paper prints, from the shipped specs.

Table 3 counts a vocabulary that the released code padded to 40960, and a table of
32 "target spaces" of the model's width which our specs do not have.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from weft.blocks.library import registry
from weft.graphs.check import check
from weft.graphs.graph import Graph
from weft.runtime.compile.build import build_empty
from weft.runtime.train.schedule import Noam, learning_rate
from weft.specs.load import load

PADDED = 40_960
"""Vocabulary of the released code."""
SPACES = 32
"""Rows of its target-space table."""


def graph(name: str, **params: Any) -> Graph:
    """Return a shipped spec, checked, with some params set."""
    return check(load(name).form, registry(), params)


def released(name: str = "transformer-base", **params: Any) -> int:
    """Return the number of parameters as the released code counted them."""
    made = graph(name, vocab=PADDED, **params)
    return made.parameters() + SPACES * made.params["d_model"]


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
    """The formulas of the blocks are those of the modules; a shared matrix counts once."""
    model = build_empty(graph(name), device="meta")

    assert sum(weight.numel() for weight in model.parameters()) == count
    assert {str(weight.device) for weight in model.parameters()} == {str(torch.device("meta"))}


TABLE_3: dict[str, tuple[dict[str, Any], int, float | None]] = {
    "base": ({}, 65, 65.1264),
    "A1": ({"heads": 1}, 65, 65.1264),
    "A2": ({"heads": 4}, 65, 65.1264),
    "A3": ({"heads": 16}, 65, 65.1264),
    "A4": ({"heads": 32}, 65, 65.1264),
    "B1": ({"d_k": 16, "d_v": 64}, 58, 58.03),
    "B2": ({"d_k": 32, "d_v": 64}, 60, 60.40),
    "C1": ({"layers": 2}, 36, 35.70),
    "C2": ({"layers": 4}, 50, 50.41),
    "C3": ({"layers": 8}, 80, 79.84),
    "C4": ({"d_model": 256, "d_ff": 2048}, 28, 27.86),
    "C5": ({"d_model": 1024, "d_ff": 2048}, 168, 167.98),
    "C6": ({"d_ff": 1024}, 53, 52.53),
    "C7": ({"d_ff": 4096}, 90, 90.32),
    "D1": ({"dropout": 0.0}, 65, 65.1264),
    "D2": ({"dropout": 0.2}, 65, 65.1264),
}
"""Row: what it changes, the millions that it prints, and the closer count."""


@pytest.mark.parametrize("row", TABLE_3)
def test_rows_of_table_3_count_what_the_paper_prints(row: str) -> None:
    """One spec and its params give every row; only what a row names is set."""
    params, printed, closer = TABLE_3[row]

    millions = released(**params) / 1e6

    assert round(millions) == printed
    digits = len(str(closer).partition(".")[2])
    assert round(millions, max(digits, 2)) == closer


def test_base_counts_65126400_as_released() -> None:
    """37000 becomes 40960, and 32 more rows: 63082496 + 3992 * 512."""
    assert released() == 65_126_400


@pytest.mark.parametrize(("row", "d_k"), [("C4", 32), ("C5", 128)])
def test_rows_c_change_the_width_of_a_head_with_the_model(row: str, d_k: int) -> None:
    """The paper names d_k = d_v = 32 and 128 there: d_model / 8."""
    made = graph("transformer-base", **TABLE_3[row][0])

    assert (made.params["d_k"], made.params["d_v"]) == (d_k, d_k)


def test_row_e_learns_its_positions() -> None:
    """Two tables of 256 x 512 take the place of the waves, and 65 stays 65."""
    position = {"use": "learned_position@1", "params": {"max_length": 256}}

    count = released(position=position)

    assert count == 65_126_400 + 2 * 256 * 512
    assert round(count / 1e6) == 65


def test_big_prints_213_for_a_vocabulary_near_36000_alone() -> None:
    """No one vocabulary gives both 65 and 213: big needs 35.3 K to 36.3 K, base more."""

    def prints(name: str, vocab: int) -> int:
        return round(graph(name, vocab=vocab).parameters() / 1e6)

    assert [prints("transformer-big", v) for v in (35_295, 35_296, 36_272, 36_273)] == [
        212,
        213,
        213,
        214,
    ]
    assert [prints("transformer-base", v) for v in (36_273, PADDED)] == [63, 65]
    assert round(released("transformer-big") / 1e6) == 218


@pytest.mark.parametrize(
    ("name", "peak"), [("transformer-base", 6.99e-4), ("transformer-big", 4.94e-4)]
)
def test_the_learning_rate_peaks_where_section_5_3_puts_it(name: str, peak: float) -> None:
    """d_model^-0.5 * 4000^-0.5, at update 4000."""
    d_model = graph(name).params["d_model"]

    rates = [learning_rate(update, Noam(warmup=4000), d_model) for update in (3999, 4000, 4001)]

    assert rates[1] == pytest.approx(peak, abs=0.005e-4)
    assert rates[1] == max(rates)
