"""State: what blocks keep from one decoding step, or segment, to the next, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

FULL_BYTES = 4
"""Bytes of a float32 number."""
_BYTES = {"int64": 8, "bool": 1}


@dataclass(frozen=True, slots=True)
class StateTensor:
    """Shape and dtype of a tensor in the decoding state of a block."""

    shape: tuple[int, ...]
    dtype: Literal["float", "float32", "int64", "bool"] = "float"
    """`float`: the precision of decoding; `float32`: the same, but at least float32."""

    def nbytes(self, float_bytes: int = FULL_BYTES) -> int:
        """Return the size in bytes.

        Args:
            float_bytes: bytes of a number in the precision of decoding.
        """
        least = FULL_BYTES if self.dtype == "float32" else 0
        return prod(self.shape) * _BYTES.get(self.dtype, max(least, float_bytes))


@dataclass(frozen=True, slots=True)
class DocumentSegments:
    """Consecutive rows of a document, each computed as one step of many positions."""

    axis: str
    """The time axis along which a document is divided."""
    memory: int
    """Number of positions before a segment of which the state is kept, at most."""
