"""One row of a study, checked and costed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ....plugin import Graph
from ..document import Row
from .base import Run
from .costs import Costs
from .match import Solution


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One row, ready to train."""

    row: Row
    value: dict[str, Any]
    """Its run as a JSON value."""
    run: Run
    graph: Graph
    """Graph of its objective."""
    costs: Costs
    signature: str
    """Equal for rows that train the same."""
    solution: Solution | None = None
    """Value of the matched param."""
    keys: dict[int, str] = field(default_factory=dict)
    """Seed to the key of its job; empty if the row is not tuned yet."""
    trials: tuple[Planned, ...] = ()
    """The row with each combination of values that it is tuned over."""

    @property
    def name(self) -> str:
        """Name of the row."""
        return self.row.name
