"""Result of comparing an imported model with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

TOLERANCE = 1e-5
"""Largest difference of two outputs, as a fraction of the largest value of theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The comparison of one output for one batch."""

    output: str
    sizes: Mapping[str, int]
    """Sizes of the spec's axes."""
    values: int
    """Number of compared values; positions of padding are omitted."""
    difference: float
    """Largest absolute difference."""
    relative: float
    """The same as a fraction of the largest absolute value of theirs."""

    @property
    def equal(self) -> bool:
        """Whether the difference is at most `TOLERANCE`; not if a value is not finite."""
        return self.relative <= TOLERANCE

    def __str__(self) -> str:
        """Return the sizes and the difference."""
        sizes = ", ".join(f"{axis} = {size}" for axis, size in self.sizes.items())
        return (
            f"{self.output} ({sizes}): largest difference {self.difference:.1e}, relative "
            f"{self.relative:.1e}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The comparison of two models; `str` of it is a report of several lines."""

    name: str
    """The class of the other library."""
    compared: tuple[Compared, ...]
    first: str = ""
    """The first layer whose outputs differ, if the models differ and their layers correspond."""
    notes: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether all outputs are equal within `TOLERANCE`."""
        return all(entry.equal for entry in self.compared)

    @property
    def worst(self) -> Compared:
        """The comparison with the largest relative difference."""
        return max(self.compared, key=lambda entry: entry.relative)

    def __str__(self) -> str:
        """Return the class, the largest difference and, if they differ, where."""
        values = sum(entry.values for entry in self.compared)
        batches = len({tuple(result.sizes.items()) for result in self.compared})
        head = f"compared {values:,} values in {batches} batches with {self.name}"
        lines = [head, f"  {self.worst}, tolerance {TOLERANCE:.0e}"]
        if not self.equal:
            lines += [f"  differs: {entry}" for entry in self.compared if not entry.equal]
            lines += [f"  first difference: {self.first}"] if self.first else []
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as JSON data; a difference that is not finite is null."""
        return {
            "equal": self.equal,
            "tolerance": TOLERANCE,
            "class": self.name,
            "compared": [
                {
                    "output": entry.output,
                    "sizes": dict(entry.sizes),
                    "values": entry.values,
                    "difference": _finite(entry.difference),
                    "relative": _finite(entry.relative),
                }
                for entry in self.compared
            ],
            "first": self.first or None,
            "notes": list(self.notes),
        }


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None


def without_padding(values: Tensor, real: Mapping[int, Tensor]) -> Tensor:
    """Return the values at positions without padding, if the second axis has padding.

    Args:
        values: [B, T, D], or values without such axes, which are returned as they are.
        real: length of a time axis to the mask [B, length] of positions without padding.
    """
    valid = real.get(values.size(1)) if values.dim() > 2 else None  # noqa: PLR2004 - [B, T, D]
    return values if valid is None or valid.shape != values.shape[:2] else values[valid]


def distance(actual: Tensor, expected: Tensor) -> tuple[float, float]:
    """Return the largest absolute and relative difference; infinite if a value is not finite."""
    actual, expected = actual.double(), expected.double()
    if not (actual.isfinite().all() and expected.isfinite().all()):
        return float("inf"), float("inf")
    difference = float((actual - expected).abs().max())
    scale = float(expected.abs().max())
    return difference, difference / scale if scale else float(difference > 0)
