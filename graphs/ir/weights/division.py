"""How the work and the weights of a block can be divided: among processes, and by heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """How processes can divide one block's work: each computes some of its heads, or of its width.

    Each process computes its part of the outputs of the `enter` maps; the outputs of the `leave`
    maps are summed over the processes.  Any dropout of the block must be between the two.
    """

    parts: Mapping[str, int]
    """Divided dimensions and their sizes, such as `{"heads": 8}`; all sizes must be divisible."""
    counted: tuple[str, ...] = ()
    """The parts whose size the module stores as an attribute."""
    enter: tuple[str, ...]
    """Linear maps of the module whose outputs are divided."""
    leave: tuple[str, ...]
    """Linear maps of the module whose inputs are divided."""
    drops: bool = False
    """Whether its use drops values at random in training; the plan of a partition sets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prunable:
    """Which axes of a block's weights shrink when attention heads are removed.

    The block has the params `heads`, `d_k` and `d_v`, and the constructor argument `kv_heads`.
    """

    rows: Mapping[str, Literal["heads", "kv_heads"]]
    """Linear map to the heads among which its output rows are divided."""
    columns: tuple[str, ...] = ()
    """Weights whose input columns are divided among the heads."""
    last_axis: tuple[str, ...] = ()
    """Parameters whose last axis has one entry for each head."""
