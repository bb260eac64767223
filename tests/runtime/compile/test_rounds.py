"""Comparisons of kernels: their intervals, when they are settled, and what is kept."""

from __future__ import annotations

from random import Random

import pytest
from weft.runtime.compile import autotune as rounds
from weft.runtime.compile.autotune import KernelTimes, comparison_of


def clocked(
    monkeypatch: pytest.MonkeyPatch, means: dict[str, float], noise: float, seed: int = 0
) -> KernelTimes:
    """Return a finished comparison of jobs with lognormal times, on a clock of its own."""
    random, now = Random(seed), [0.0]

    def job(name: str) -> None:
        now[0] += means[name] * random.lognormvariate(0.0, noise)

    monkeypatch.setattr(rounds.time, "perf_counter", lambda: now[0])
    found = KernelTimes("attention at 32", "fused")
    found.measure({name: lambda name=name: job(name) for name in means})
    return found


def test_the_interval_is_that_of_the_sign_test() -> None:
    """For 10 values, the second smallest to the second largest: 2 (1 + 10) / 2**10 < 0.05."""
    times = {"fused": [float(n) for n in range(1, 11)], "plain": [1.0] * 10}

    gain = KernelTimes("products", "fused", times).gain("plain", "fused")

    assert gain == (2.0, 5.5, 9.0)
    six = KernelTimes("products", "fused", {name: each[:6] for name, each in times.items()})
    assert six.gain("plain", "fused") == (1.0, 3.5, 6.0)


@pytest.mark.parametrize(
    ("plain", "choice"), [(0.005, "plain"), (0.0099, "fused"), (0.02, "fused")]
)
def test_quiet_times_are_settled_at_once(
    monkeypatch: pytest.MonkeyPatch, plain: float, choice: str
) -> None:
    """Half the time is chosen; 1 % less is not worth other rounding."""
    found = clocked(monkeypatch, {"fused": 0.01, "plain": plain}, noise=0.001)

    assert (found.choice, found.rounds, found.is_settled) == (choice, rounds.LEAST, True)


def test_noisy_times_are_repeated_and_rarely_choose_wrongly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kernel that is as fast as the default is chosen in few of 60 noisy comparisons."""
    same = [clocked(monkeypatch, {"fused": 1e-3, "plain": 1e-3}, 0.2, seed) for seed in range(60)]
    faster = [
        clocked(monkeypatch, {"fused": 1.5e-3, "plain": 1e-3}, 0.2, seed) for seed in range(60)
    ]

    assert sum(one.choice == "plain" for one in same) <= 2
    assert sum(one.choice == "plain" for one in faster) >= 58
    assert max(one.rounds for one in same) > rounds.LEAST


def test_a_comparison_stops_in_time_and_goes_on_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not settled after some seconds keeps its times; the next process adds to them."""
    monkeypatch.setattr(rounds, "SECONDS", 0.5)
    first = clocked(monkeypatch, {"fused": 0.0105, "plain": 0.01}, noise=0.1)
    assert not first.is_settled
    assert "not settled" in str(first)

    kept = comparison_of(first.as_json(), first.what, "fused", ["fused", "plain"])
    assert kept.rounds == first.rounds
    kept.seconds = {name: each * 9 for name, each in kept.seconds.items()}
    assert kept.is_settled
    assert kept.rounds >= rounds.MOST


def test_kernels_that_are_equally_fast_need_no_further_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Either of two that are twice as fast as the default will do, but not a slower third."""
    times = {"fused": 0.02, "plain": 0.01, "blocked": 0.0101}
    found = clocked(monkeypatch, times, noise=0.002)

    assert found.choice in {"plain", "blocked"}
    assert found.rounds == rounds.LEAST


@pytest.mark.parametrize(
    "stored",
    [
        None,
        {},
        {"default": "torch", "seconds": {"fused": [1.0], "plain": [1.0]}},
        {"default": "fused", "seconds": {"fused": [1.0]}},
        {"default": "fused", "seconds": {"fused": [1.0], "plain": []}},
        {"default": "fused", "seconds": {"fused": [1.0], "plain": ["1"]}},
        {"default": "fused", "seconds": {"fused": [1.0], "plain": [0.0]}},
        {"default": "fused", "seconds": {"fused": 1.0, "plain": [1.0]}},
    ],
)
def test_a_damaged_comparison_begins_again(stored: object) -> None:
    """Also one of other kernels."""
    assert comparison_of(stored, "attention at 32", "fused", ["fused", "plain"]).rounds == 0
