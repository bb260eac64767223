"""Rules for initial weights, with the parameters that they select."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class InitRule:
    """A rule for the initial weights of some parameters of a scope."""

    select: str
    weights: str
    """Pattern of the names of the parameters."""
    action: str
    """`scale`, `normal`, `uniform`, `constant` or `zeros`."""
    value: float
    paths: tuple[str, ...] = field(repr=False)
    """The selected parameters, by their paths in the scope."""
