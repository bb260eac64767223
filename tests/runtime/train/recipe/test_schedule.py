"""Rates over the updates of a run, against values computed by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from weft.runtime.train.recipe.schedule import (
    Schedule,
    of_paper,
    peak_of,
    share_of_peak,
    wrong_schedule,
)
from weft.specs.findings import InputError

COSINE: list[dict[str, Any]] = [{"to": 1, "over": 10}, {"shape": "cosine", "to": 0.2}]


def schedule(pieces: list[dict[str, Any]] | None, peak: Any = 1.0) -> Schedule:
    """Return a schedule as a run file has it."""
    return Schedule.model_validate({"peak": peak, "pieces": pieces})


def told(pieces: list[dict[str, Any]], updates: int, *, shortened: bool = False) -> list[str]:
    """Return level, place and problem of each finding."""
    findings = wrong_schedule(schedule(pieces), updates, shortened=shortened)
    return [f"{finding.level} {finding.at} {finding.problem}" for finding in findings]


@pytest.mark.parametrize(("d_model", "peak"), [(512, 6.99e-4), (1024, 4.94e-4)])
def test_the_default_peaks_where_the_paper_does(d_model: int, peak: float) -> None:
    """The base model reaches 6.99e-4 and the big one 4.94e-4, both at update 4000."""
    shares = {u: share_of_peak(of_paper(), u, 100_000) for u in (3999, 4000, 4001)}

    assert peak_of(of_paper(), {"d_model": d_model}) == pytest.approx(peak, rel=1e-3)
    assert shares[4000] == 1.0
    assert max(shares, key=lambda update: shares[update]) == 4000


@given(st.integers(1, 10**6), st.integers(1, 4096))
def test_the_default_is_the_formula_of_the_paper(update: int, d_model: int) -> None:
    """d_model^-0.5 * min(update^-0.5, update * 4000^-1.5), section 5.3."""
    peak = peak_of(of_paper(), {"d_model": d_model})

    rate = peak * share_of_peak(of_paper(), update, 10**6)

    assert rate == pytest.approx(d_model**-0.5 * min(update**-0.5, update * 4000**-1.5))


@pytest.mark.parametrize(("update", "share"), [(5, 0.5), (10, 1.0), (60, 0.6), (110, 0.2)])
def test_a_cosine_by_hand(update: int, share: float) -> None:
    """From 1 to 0.2 between updates 10 and 110: 0.6 in the middle."""
    assert share_of_peak(schedule(COSINE), update, 110) == pytest.approx(share)


def test_the_last_piece_takes_what_the_others_leave() -> None:
    """A run of twice the updates reaches the same value at its end, not in its middle."""
    short, long = (share_of_peak(schedule(COSINE), n, n) for n in (110, 220))

    assert short == long == pytest.approx(0.2)
    assert share_of_peak(schedule(COSINE), 110, 220) > 0.5


@pytest.mark.parametrize(
    ("piece", "share"),
    [
        ({"to": 0}, 0.75),
        ({"shape": "cosine", "to": 0}, (1 + math.sqrt(0.5)) / 2),
        ({"shape": "sqrt", "to": 0}, 0.5),
        ({"to": 0.6}, 0.9),
        ({"from": 0.5}, 0.5),
        ({}, 1.0),
    ],
)
def test_the_shapes_at_a_quarter_of_their_length(piece: dict[str, Any], share: float) -> None:
    """After two updates of rise, the first of four."""
    pieces: list[dict[str, Any]] = [{"to": 1, "over": 2}, {**piece, "over": 4}]

    assert share_of_peak(schedule(pieces), 3, 6) == pytest.approx(share)


def test_a_power_stops_at_its_limit() -> None:
    """From update 4 on, the share is sqrt(4 / update), at least 0.4."""
    pieces: list[dict[str, Any]] = [{"to": 1, "over": 4}, {"shape": "power", "to": 0.4}]

    shares = [share_of_peak(schedule(pieces), n, 1000) for n in (4, 16, 25, 100)]

    assert shares == pytest.approx([1.0, 0.5, 0.4, 0.4])


def test_shares_of_the_run_grow_with_it() -> None:
    """A tenth of rise, six tenths at the peak, and the rest of the fall."""
    pieces = [{"to": 1, "over": 0.1}, {"over": 0.6}, {"to": 0}]

    for updates in (10, 1000):
        marks = [updates // 20 or 1, updates // 10, updates * 7 // 10, updates * 85 // 100]
        shares = [share_of_peak(schedule(pieces), n, updates) for n in marks]
        assert shares[1:3] == [1.0, 1.0]
        assert 0 < shares[3] < 1
        assert share_of_peak(schedule(pieces), updates, updates) == 0.0


def test_without_pieces_the_rate_is_constant() -> None:
    """The peak is the rate of every update."""
    assert {share_of_peak(schedule(None), n, 9) for n in (1, 5, 9)} == {1.0}


@pytest.mark.parametrize(
    "wrong",
    [
        {"peak": 0},
        {"peak": "0.1"},
        {"peak": "=d_model **"},
        {"type": "cosine"},
        {"pieces": []},
        {"pieces": [{"to": 1}, {"to": 0}]},
        {"pieces": [{"to": 1, "over": 0}]},
        {"pieces": [{"to": 1, "over": 1.5}]},
        {"pieces": [{"from": 1, "to": 1}]},
        {"pieces": [{"shape": "cosine"}]},
        {"pieces": [{"to": 1, "exponent": 2}]},
        {"pieces": [{"shape": "warmup", "to": 1}]},
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, object]) -> None:
    """Two pieces that both take the rest, lengths of no update, and settings of other shapes."""
    with pytest.raises(ValidationError):
        Schedule.model_validate(wrong)


@pytest.mark.parametrize("params", [{}, {"d_model": "wide"}, {"d_model": 0}])
def test_a_peak_without_a_value_is_refused_with_the_params(params: dict[str, Any]) -> None:
    """The model has no such param, or the formula has no value."""
    with pytest.raises(InputError, match="write a number"):
        peak_of(of_paper(), params)


def test_update_zero_is_refused() -> None:
    """Counting from 0 would train the first update at rate 0."""
    with pytest.raises(ValueError, match="counted from 1"):
        share_of_peak(of_paper(), 0, 9)


@pytest.mark.parametrize(
    ("pieces", "updates", "place", "problem"),
    [
        ([{"to": 1, "over": 50}], 12, "/schedule/pieces/0", "ends at update 50, but the run at 12"),
        (COSINE, 10, "/schedule/pieces/1", "begins after update 10, but the run ends at 10"),
        ([{"to": 1, "over": 4}, {"to": 0, "over": 2}], 12, "/schedule/pieces/1", "from update 6"),
        ([{"to": 1, "over": 0.01}, {"to": 0}], 12, "/schedule/pieces/0", "less than one"),
        (
            [{"to": 1, "over": 5}, {"to": 0}, {"to": 1, "over": 7}],
            12,
            "/schedule/pieces/1",
            "12 of 12",
        ),
        ([{"over": 3}, {"from": 1}], 12, "/schedule/pieces/0", "is 0 in updates 1 to 3"),
        ([{"from": 1, "to": -1}], 12, "/schedule/pieces/0", "below 0"),
    ],
)
def test_updates_that_do_not_train_as_said_are_errors(
    pieces: list[dict[str, Any]], updates: int, place: str, problem: str
) -> None:
    """A rise without an end, pieces after the end of the run, and rates of 0."""
    [finding] = told(pieces, updates)

    assert finding.startswith(f"error {place}")
    assert problem in finding


def test_a_fall_that_the_run_cuts_off_is_a_warning() -> None:
    """The rate is above 0 until the end, but it does not reach the last value."""
    [finding] = told([{"to": 1, "over": 4}, {"to": 0, "over": 100}], 12)

    assert finding.startswith("warning /schedule/pieces/1")


def test_a_run_that_is_shortened_to_try_it_may_end_in_its_rise() -> None:
    """With a warning; the pieces behind it are not mentioned."""
    assert [text.split()[:2] for text in told(COSINE, 5, shortened=True)] == [
        ["warning", "/schedule/pieces/0"]
    ]


def test_a_run_that_is_lengthened_never_trains_at_rate_0() -> None:
    """An error also if the updates were overridden, as by `--resume --set updates=40`."""
    [finding] = told([{"to": 1, "over": 4}, {"to": 0, "over": 8}], 40, shortened=True)

    assert finding.startswith("error /schedule/pieces/1 the rate is 0 from update 12 on")
