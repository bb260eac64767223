"""The best next tokens of wide rows, searched in parts."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from weft.runtime.decode.search import top_k as candidates
from weft.runtime.decode.search.top_k import RUNS, BannedTokens

EOS = 1
WIDE = RUNS * RUNS + 77
"""Tokens that are divided into runs, and some are left over."""


def banned(rows: int, *, min_length: int = 0, limit: int = 9) -> BannedTokens:
    """Return `BannedTokens` that ban tokens 0 and 3, and the end token up to a minimum length."""
    return BannedTokens({0, 3}, (EOS,), min_length, torch.full((rows,), limit))


@given(seed=st.integers(0, 99), count=st.integers(1, 9), wide=st.booleans(), half=st.booleans())
def test_the_top_k_equal_those_of_the_complete_table(
    seed: int, count: int, wide: bool, half: bool
) -> None:
    """They equal the first of the sorted row, including values near the ends of runs."""
    size = WIDE if wide else 11
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(5, size, generator=generator)
    far = torch.randint(0, size, (5, 2), generator=generator)
    logits = logits.scatter(1, far, 9.0 + torch.rand(5, 2, generator=generator))
    logits[0, -1] = logits[1, size // RUNS * RUNS - 1] = 12.0
    logits = logits.bfloat16() if half else logits
    expected = logits.float().log_softmax(1)
    expected[:, [0, 3]] = -torch.inf

    best, tokens = banned(5).best(logits, 0, count)

    torch.testing.assert_close(best, expected.sort(1, descending=True).values[:, :count])
    torch.testing.assert_close(expected.gather(1, tokens), best)
    assert all(len(set(row)) == count for row in tokens.tolist())


def test_ties_go_to_the_lowest_index() -> None:
    """Ties within one run, between runs and in the remainder go to the first, as in `argmax`."""
    logits = torch.zeros(3, WIDE)
    logits[0, [700, 800, 9000]] = 5.0
    logits[1, [WIDE - 2, WIDE - 1]] = 5.0
    logits[2, [5000, WIDE - 1]] = 5.0

    _, tokens = banned(3).best(logits, 0, 1)

    assert tokens[:, 0].tolist() == [700, WIDE - 2, 5000]


@pytest.mark.parametrize("size", [11, WIDE])
def test_the_end_is_banned_below_the_minimum_length(size: int) -> None:
    """Below the minimum length the end is banned, except for the last token of a row."""
    logits = torch.zeros(2, size)
    logits[:, EOS] = 9.0
    rules = BannedTokens({0}, (EOS,), 4, torch.tensor([3, 9]))

    taken = [rules.best(logits, position, 1)[1][:, 0] == EOS for position in range(5)]
    whole = [rules.log_probabilities(logits, place).argmax(1) == EOS for place in range(5)]

    assert torch.stack(taken)[2:].tolist() == [[True, False], [True, False], [True, True]]
    assert not torch.stack(taken)[:2].any()
    assert torch.equal(torch.stack(taken), torch.stack(whole))


def test_rows_are_normed_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result does not depend on how rows are divided."""
    logits = torch.randn(7, 11, generator=torch.Generator().manual_seed(1))
    logits[:, EOS] = 9.0
    rules = BannedTokens({0}, (EOS,), 2, torch.tensor([1, 5, 1, 5, 1, 5, 1]))
    whole = rules.best(logits, 0, 3)

    monkeypatch.setattr(candidates, "TOGETHER", 25)
    parts = rules.best(logits, 0, 3)

    torch.testing.assert_close(parts, whole)
    assert (whole[1][:, 0] == EOS).tolist() == [True, False, True, False, True, False, True]
