"""Filters: which pairs are dropped, and how they are counted."""

from __future__ import annotations

import pytest
from weft.runtime.data.settings import FilterSettings
from weft.runtime.data.shards.filters import FilterCount, refuse


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        (0, 3, "empty_source"),
        (3, 0, "empty_target"),
        (0, 0, "empty_source"),
        (10, 10, None),
        (11, 10, "too_long"),
        (10, 11, "too_long"),
        (10, 5, None),
        (5, 10, None),
        (10, 4, "ratio"),
        (4, 10, "ratio"),
        (11, 1, "too_long"),
    ],
)
def test_a_limit_itself_is_kept(source: int, target: int, reason: str | None) -> None:
    """At most 10 tokens, and at most twice as many on one side as on the other."""
    assert refuse((source, target), FilterSettings(max_length=10, max_ratio=2.0)) == reason


def test_without_a_ratio_any_ratio_is_kept() -> None:
    """None means no limit."""
    assert refuse((1, 250), FilterSettings()) is None


def test_every_pair_is_counted_once() -> None:
    """Read equals kept plus dropped; spared pairs are among the kept."""
    limits = FilterSettings(max_length=3, max_ratio=2.0)
    pairs = [(1, 1), (0, 1), (4, 4), (3, 1), (2, 2)]
    strict, lenient = FilterCount(), FilterCount()

    kept = [strict.keep(pair, limits) for pair in pairs]
    spared = [lenient.keep(pair, limits, only_empty=True) for pair in pairs]

    assert kept == [True, False, False, False, True]
    assert strict.as_dict() == {
        "read": 5,
        "kept": 2,
        "dropped": {"empty_source": 1, "ratio": 1, "too_long": 1},
        "spared": {},
    }
    assert spared == [True, False, True, True, True]
    assert lenient.as_dict() == {
        "read": 5,
        "kept": 4,
        "dropped": {"empty_source": 1},
        "spared": {"ratio": 1, "too_long": 1},
    }
