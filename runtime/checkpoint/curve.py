"""Curves: how a number changes over the updates of a run, in pieces.

Rates, momentum, dropout, batches of an update and inputs of an objective are written in them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    model_validator,
)

from ...graphs.ir.value_type import ValueType
from ...specs.findings import Finding, pointer
from ...specs.wording import SettingError, refuse
from ..data.settings import Settings

_Number = Annotated[float, Field(allow_inf_nan=False)]
SCALAR = ValueType("f", ())
"""Type of the inputs that values fill."""


_Length = Annotated[
    Annotated[int, Field(ge=1), Tag("updates")] | Annotated[float, Field(gt=0, lt=1), Tag("share")],
    Discriminator(lambda value: "share" if isinstance(value, float) and value < 1 else "updates"),
]


ROOT = -0.5
"""Exponent of the fall of the paper's schedule."""


class CurvePiece(Settings):
    """A number of updates in which a value changes, or stays as it is."""

    shape: Literal["linear", "cosine", "sqrt", "power"] = "linear"
    """How it changes: in a line; in half a period of a cosine; `sqrt` by the root of the share of
    the piece that is done (Haegele et al. 2024, section 4.1, arXiv 2405.18392); `power` with the
    number of the update, to the power `exponent`."""
    from_: _Number | None = Field(default=None, alias="from")
    """Value before its first update; `null` is where the piece before ends, 0 for the first."""
    to: _Number | None = None
    """Value at its last update; `null` leaves the value as it is.  Of `power`, the limit at which
    the value stops, if any."""
    over: _Length | None = None
    """Its updates; below 1, its share of the run.  `null` is what the other pieces leave."""
    exponent: _Number = ROOT
    """Exponent of `power`; -0.5 is that of Vaswani et al. 2017, section 5.3."""

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> Self:
        """Refuse a piece that says nothing, or has settings without effect."""
        refuse(self._mistakes(), info)
        return self

    def _mistakes(self) -> Iterator[SettingError]:
        if self.from_ is not None and self.from_ == self.to:
            problem = f"the value is {self.to:g} in the whole piece"
            yield SettingError(problem, "to", help_="leave 'to' out: the value stays at 'from'")
        if self.to is None and self.shape not in ("linear", "power"):
            problem = f"'{self.shape}' needs the value at the end of the piece"
            yield SettingError(problem, "shape", help_="add 'to', or leave 'shape' out")
        if self.shape != "power" and self.exponent != ROOT:
            problem = "'exponent' belongs to the shape 'power'"
            yield SettingError(problem, "exponent", help_="remove it, or set 'shape' to 'power'")

    @property
    def holds(self) -> bool:
        """Whether the value stays as it is."""
        return self.to is None and self.shape != "power"


def _refuse_two_open(pieces: tuple[CurvePiece, ...]) -> tuple[CurvePiece, ...]:
    """Return pieces whose lengths are clear.

    Raises:
        SettingError: there is no piece, or several take what the others leave.
    """
    if not pieces:
        raise SettingError("a curve needs a piece", help_="write a number, or add a piece")
    unlimited = [number for number, piece in enumerate(pieces) if piece.over is None]
    if len(unlimited) > 1:
        raise SettingError(
            f"pieces {unlimited[0]} and {unlimited[1]} both take what the others leave",
            unlimited[1],
            help_="set 'over' of all pieces but one, such as 400 updates or 0.2 of the run",
        )
    return pieces


Pieces = Annotated[tuple[CurvePiece, ...], AfterValidator(_refuse_two_open)]
"""Pieces in the order of the updates; after the last one the value stays."""
BY_FORM = Discriminator(lambda value: "pieces" if isinstance(value, list | tuple) else "number")
"""Selects the member `number` or `pieces` of a union, so that a wrong value is wrong once."""
OfPieces = Annotated[Pieces, Tag("pieces")]
Curve = Annotated[Annotated[_Number, Tag("number")] | OfPieces, BY_FORM]
"""A number, or the pieces in which it changes."""
Values = Mapping[str, Curve]
"""Name of an input to its value."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A piece of a curve in a run of known length."""

    piece: CurvePiece
    after: int
    """Update after which it begins."""
    until: int
    """Its last update, which may be after the end of the run."""
    start: float
    """Value before its first update."""

    def at(self, update: int) -> float:
        """Return the value at one of its updates."""
        piece, start = self.piece, self.start
        if piece.shape == "power":
            value = start * math.pow(update / max(1, self.after), piece.exponent)
            if piece.to is None:
                return value
            return max(piece.to, value) if piece.exponent < 0 else min(piece.to, value)
        if piece.to is None:
            return start
        done = min(1.0, (update - self.after) / (self.until - self.after))
        if piece.shape == "cosine":
            return piece.to + 0.5 * (start - piece.to) * (1.0 + math.cos(math.pi * done))
        return start + (piece.to - start) * (math.sqrt(done) if piece.shape == "sqrt" else done)

    @property
    def end(self) -> float:
        """Value at its last update, or after it if it has none."""
        if self.until > self.after:
            return self.at(self.until)
        return self.start if self.piece.to is None else self.piece.to


def stretches(pieces: Sequence[CurvePiece], updates: int) -> list[Stretch]:
    """Return where the pieces of a curve begin and end.

    Args:
        pieces: the pieces, at most one without a length.
        updates: number of updates of the run.
    """
    lengths = [
        None if p.over is None else round(p.over * updates) if p.over < 1 else int(p.over)
        for p in pieces
    ]
    remaining = max(0, updates - sum(length or 0 for length in lengths))
    placed: list[Stretch] = []
    after, value = 0, 0.0
    for piece, length in zip(pieces, lengths, strict=True):
        until = after + (remaining if length is None else length)
        start = value if piece.from_ is None else piece.from_
        placed.append(Stretch(piece, after, until, start))
        after, value = until, placed[-1].end
    return placed


def curve_at(curve: Curve, update: int | None, updates: int) -> float:
    """Return the value of a curve at an update.

    Args:
        curve: a number or pieces.
        update: its number, counted from 1; None for the value at the end.
        updates: number of updates of the run.

    Raises:
        ValueError: the update is below 1.
    """
    if not isinstance(curve, tuple):
        return float(curve)
    number = updates if update is None else update
    if number < 1:
        msg = f"updates are counted from 1, not {number}"
        raise ValueError(msg)
    placed = stretches(curve, updates)
    inside = next((stretch for stretch in placed if stretch.after < number <= stretch.until), None)
    return placed[-1].end if inside is None else inside.at(number)


def changes_gradually(curve: Curve) -> bool:
    """Return whether a curve has many values."""
    return isinstance(curve, tuple) and not all(piece.holds for piece in curve)


def values_at(values: Values, update: int | None, updates: int) -> dict[str, float]:
    """Return the values of an update, by name; arguments as of `curve_at`."""
    return {name: curve_at(value, update, updates) for name, value in values.items()}


def misplaced(curve: Curve, updates: int, at: str) -> Iterator[Finding]:
    """Yield a finding for each piece of a curve that a run does not reach or does not complete.

    Args:
        curve: a number or pieces.
        updates: number of updates of the run.
        at: its JSON Pointer.
    """
    if not isinstance(curve, tuple):
        return
    placed = stretches(curve, updates)
    taken = sum(stretch.until - stretch.after for stretch in placed if stretch.piece.over)
    for number, stretch in enumerate(placed):
        piece, after = stretch.piece, stretch.after
        level: Literal["error", "warning"] = "error"
        if after >= updates:
            problem = f"the piece begins after update {after:,}, but the run ends at {updates:,}"
            help_ = "shorten the pieces before it, or set 'updates' to more"
        elif stretch.until == after and piece.over is None:
            problem = f"no update is left for the piece: the others take {taken:,} of {updates:,}"
            help_ = "shorten the others, set its 'over', or set 'updates' to more"
        elif stretch.until == after:
            problem = f"{piece.over:.4g} of {updates:,} updates are less than one"
            help_ = f"set 'over' to at least {1 / updates:.4g}"
        elif stretch.until > updates and piece.to is not None:
            problem = f"the piece ends at update {stretch.until:,}, but the run at {updates:,}, so"
            problem += f" the value does not reach {piece.to:g}"
            help_ = f"set 'over' to at most {updates - after:,}, or 'updates' to at least"
            help_ += f" {stretch.until:,}"
            level = "warning" if number else "error"
        else:
            continue
        path = at + pointer(number)
        yield Finding(code="R08", level=level, at=path, problem=problem, help=help_)
        if stretch.until >= updates:
            return  # the pieces behind it are not reached either
