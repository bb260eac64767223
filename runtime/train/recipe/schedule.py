"""The learning rate of a run: its peak, and the pieces in which it rises and falls.

Not here: setting the rate of an optimizer (`optimize.py`), and the pieces
(`../../checkpoint/curve.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator, Discriminator, Field, Tag

from ....specs.expressions import ExpressionError, evaluate, parsed
from ....specs.findings import Finding, InputError
from ....specs.wording import SettingError
from ...checkpoint.curve import CurvePiece, Pieces, curve_at, misplaced, stretches
from ...data.settings import Settings


def _formula(text: str) -> str:
    """Return a text that is a formula.

    Raises:
        SettingError: it is none.
    """
    example = "write a number, or a formula of the model's params, such as '=d_model ** -0.5'"
    if not text.startswith("="):
        raise SettingError(f"'{text:.80}' is not a formula", help_=example)
    try:
        parsed(text[1:])
    except ExpressionError as error:
        raise SettingError(f"'{text:.80}' is not a formula: {error}", help_=example) from error
    return text


Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A learning rate."""
Peak = Annotated[
    Annotated[Rate, Tag("number")] | Annotated[str, AfterValidator(_formula), Tag("formula")],
    Discriminator(lambda value: "formula" if isinstance(value, str) else "number"),
]
"""A learning rate, or a formula of the params of the model."""
PAPER = "=(d_model * 4000) ** -0.5"
"""The highest rate of Vaswani et al. 2017, section 5.3, https://arxiv.org/abs/1706.03762."""


class Schedule(Settings):
    """The learning rate over the updates: a peak times the value of a curve."""

    peak: Peak = 0.001
    """The rate where the value of the pieces is 1: a number, or a formula of the params of the
    model, such as `"=(d_model * 4000) ** -0.5"`."""
    pieces: Pieces | None = None
    """Pieces with values as multiples of the peak, such as a rise to 1 over 400 updates, then a
    cosine to 0.1; `null` is a constant rate."""


def of_small_data() -> Schedule:
    """Return a rise in a tenth of the run, then half a period of a cosine to 0 at its end."""
    return Schedule(pieces=(CurvePiece(to=1.0, over=0.1), CurvePiece(shape="cosine", to=0.0)))


def of_paper() -> Schedule:
    """Return the schedule of the paper: a rise in 4,000 updates, then a fall with their root."""
    return Schedule(peak=PAPER, pieces=(CurvePiece(to=1.0, over=4000), CurvePiece(shape="power")))


def peak_of(schedule: Schedule, params: Mapping[str, Any]) -> float:
    """Return the peak of a schedule.

    Args:
        schedule: the schedule.
        params: params of the model that trains.

    Raises:
        InputError: the formula of the peak reads a param that the model has not, or has no value
            above 0.
    """
    if not isinstance(schedule.peak, str):
        return schedule.peak
    numbers = {name: value for name, value in params.items() if type(value) in (int, float)}
    try:
        peak = float(evaluate(schedule.peak[1:], numbers))
    except (ExpressionError, ArithmeticError, TypeError, ValueError) as error:
        raise InputError(
            f"the peak '{schedule.peak}' has no value: {error}",
            location="/schedule/peak",
            help="write a number, such as 0.001, or a formula of the params of the model:"
            f" {', '.join(numbers) or 'it has none'}",
        ) from error
    if not 0 < peak < math.inf:
        raise InputError(
            f"the peak '{schedule.peak}' is {peak:g}",
            location="/schedule/peak",
            help="write a formula whose value is above 0, or a number",
        )
    return peak


def share_of_peak(schedule: Schedule, update: int, updates: int) -> float:
    """Return the rate of an update as a multiple of the peak.

    Args:
        schedule: the schedule.
        update: number of the update, counted from 1.
        updates: number of updates of the run.

    Raises:
        ValueError: the update is below 1.
    """
    return curve_at(1.0 if schedule.pieces is None else schedule.pieces, update, updates)


def wrong_schedule(schedule: Schedule, updates: int, *, shortened: bool) -> Iterator[Finding]:
    """Yield a finding for each piece that a run does not complete, or that trains nothing.

    Args:
        schedule: the schedule.
        updates: number of updates of the run.
        shortened: whether the number of updates was overridden, as one does to try a run.
    """
    pieces = schedule.pieces or ()
    findings = misplaced(schedule.pieces or 1.0, updates, "/schedule/pieces")
    if not shortened:
        yield from findings
    else:  # the rate may then end in its rise
        first = (finding for finding in findings if finding.at == "/schedule/pieces/0")
        yield from (replace(finding, level="warning") for finding in first)
    placed = [s for s in stretches(pieces, updates) if s.after < min(s.until, updates)]
    for stretch in placed:
        at = f"/schedule/pieces/{pieces.index(stretch.piece)}"
        if min(stretch.start, stretch.end) < 0:
            yield Finding(
                code="R08",
                at=at,
                problem="the piece has rates below 0",
                help="write values from 0, as multiples of the peak",
            )
        elif stretch.start == 0 == stretch.at(min(stretch.until, updates)):
            yield Finding(
                code="R08",
                at=at,
                problem=f"the rate is 0 in updates {stretch.after + 1:,} to"
                f" {min(stretch.until, updates):,}, which train nothing",
                help="add 'to' with a value above 0, or remove the piece",
            )
    if placed and placed[-1].until < updates and placed[-1].end == 0:
        last = placed[-1]
        yield Finding(
            code="R08",
            at=f"/schedule/pieces/{pieces.index(last.piece)}",
            problem=f"the rate is 0 from update {last.until:,} on, but the run has {updates:,}",
            help="leave 'over' of one piece out: it then takes the updates that the others leave",
        )
