"""Tests of the schedules against values computed by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from weft.runtime.train.schedule import (
    Constant,
    Cosine,
    InverseSqrt,
    Noam,
    Schedule,
    learning_rate,
)
from weft.specs.findings import InputError


@pytest.mark.parametrize(("d_model", "peak"), [(512, 6.99e-4), (1024, 4.94e-4)])
def test_noam_peaks_where_the_paper_does(d_model: int, peak: float) -> None:
    """The base model reaches 6.99e-4 and the big one 4.94e-4, both at update 4000."""
    rates = {u: learning_rate(u, Noam(), d_model) for u in (3999, 4000, 4001)}

    assert rates[4000] == pytest.approx(peak, rel=1e-3)
    assert max(rates, key=lambda update: rates[update]) == 4000


@pytest.mark.parametrize(
    ("update", "rate"),
    [
        (1, 512**-0.5 * 4000**-1.5),
        (2000, 512**-0.5 * 4000**-0.5 / 2),
        (16000, 512**-0.5 / 126.4911),
    ],
)
def test_noam_rises_in_a_line_and_falls_as_a_root(update: int, rate: float) -> None:
    """Update 1 is not zero; half the warmup is half the peak; 1 / sqrt(16000) = 1 / 126.4911."""
    assert learning_rate(update, Noam(), 512) == pytest.approx(rate)


def test_noam_scale_multiplies_the_curve() -> None:
    """`scale` 2 doubles the rate everywhere."""
    assert learning_rate(77, Noam(scale=2.0), 64) == 2 * learning_rate(77, Noam(), 64)


@pytest.mark.parametrize(("update", "rate"), [(1, 0.001), (50, 0.05), (100, 0.1), (400, 0.05)])
def test_inverse_sqrt_by_hand(update: int, rate: float) -> None:
    """With a peak of 0.1 at update 100, the rate at update 400 is half of it."""
    assert learning_rate(update, InverseSqrt(peak=0.1, warmup=100), None) == pytest.approx(rate)


@given(st.integers(1, 10**6), st.integers(1, 10**5), st.integers(1, 4096))
def test_inverse_sqrt_at_its_peak_is_noam(update: int, warmup: int, d_model: int) -> None:
    """`noam` and `inverse_sqrt` are the same curve with different parameters."""
    peak = (d_model * warmup) ** -0.5

    noam = learning_rate(update, Noam(warmup=warmup), d_model)
    inverse = learning_rate(update, InverseSqrt(peak=peak, warmup=warmup), None)

    assert noam == pytest.approx(inverse)


@pytest.mark.parametrize(
    ("update", "rate"), [(5, 0.5), (10, 1.0), (60, 0.6), (110, 0.2), (500, 0.2)]
)
def test_cosine_by_hand(update: int, rate: float) -> None:
    """From 1.0 to 0.2 between updates 10 and 110: 0.6 in the middle, constant after the end."""
    settings = Cosine(peak=1.0, warmup=10, total=110, floor=0.2)

    assert learning_rate(update, settings, None) == pytest.approx(rate)


def test_cosine_without_warmup_starts_below_its_peak() -> None:
    """The first of four updates is a quarter of the way: (1 + cos(pi / 4)) / 2."""
    rate = learning_rate(1, Cosine(peak=1.0, total=4), None)

    assert rate == pytest.approx((1 + math.sqrt(0.5)) / 2)


@pytest.mark.parametrize(
    ("warmup", "update", "rate"),
    [(0, 1, 0.3), (0, 9, 0.3), (10, 1, 0.03), (10, 10, 0.3), (10, 99, 0.3)],
)
def test_constant_by_hand(warmup: int, update: int, rate: float) -> None:
    """Constant at once, or after a warmup of ten updates."""
    assert learning_rate(update, Constant(rate=0.3, warmup=warmup), None) == pytest.approx(rate)


def test_the_type_chooses_the_schedule() -> None:
    """A run file is plain JSON; `type` selects the settings."""
    adapter: TypeAdapter[Schedule] = TypeAdapter(Schedule)

    assert adapter.validate_python({"type": "noam", "warmup": 8}) == Noam(warmup=8)
    assert adapter.validate_python({"type": "constant", "rate": 0.1}) == Constant(rate=0.1)


@pytest.mark.parametrize(
    "text",
    [
        {"type": "noam", "peak": 0.1},
        {"type": "noam", "warmup": 0},
        {"type": "inverse_sqrt"},
        {"type": "cosine", "peak": 1, "warmup": 10, "total": 10},
        {"type": "cosine", "peak": 1, "total": 10, "floor": 2},
        {"type": "linear"},
    ],
)
def test_invalid_schedule_settings_are_refused(text: dict[str, object]) -> None:
    """A key of another schedule, a missing peak and an empty decay are errors."""
    adapter: TypeAdapter[Schedule] = TypeAdapter(Schedule)

    with pytest.raises(ValidationError):
        adapter.validate_python(text)


def test_noam_without_a_width_is_refused_with_help() -> None:
    """A model without a single width is an error that suggests another schedule."""
    with pytest.raises(InputError, match="inverse_sqrt"):
        learning_rate(1, Noam(), None)


def test_update_zero_is_refused() -> None:
    """Counting from 0 would divide by zero and train the first update at rate 0."""
    with pytest.raises(ValueError, match="counted from 1"):
        learning_rate(0, Constant(rate=1.0), None)
