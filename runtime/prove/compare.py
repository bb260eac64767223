"""Differences between two tensors: how large, and where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...graphs.ir.value_type import Axis


@dataclass(frozen=True, slots=True)
class Difference:
    """The largest difference between the found and the expected values of one tensor."""

    what: str
    """Name of the output, input or parameter, and in which case it was compared."""
    amount: float
    """Relative to the largest expected value, or absolute if that is below 1; inf for NaN."""
    position: str = ""
    """Where it is, such as `B=0, T=3, 5`."""

    @property
    def place(self) -> str:
        """The tensor and the position in it."""
        return f"{self.what} at {self.position}" if self.position else self.what


def difference(
    what: str,
    actual: Tensor,
    expected: Tensor,
    axes: Sequence[Axis] = (),
    valid: Tensor | None = None,
    first: Mapping[str, int] | None = None,
) -> Difference:
    """Return the largest difference between two tensors.

    Equal infinities and NaN at the same position are equal: whether values are finite is another
    question, which the gradients answer.

    Args:
        what: name of the tensor.
        actual: values of any dtype.
        expected: values to compare with.
        axes: names of the first axes, for the position.
        valid: true where values are compared; it can be broadcast to the shape.
        first: axis to the index that the first compared position has on it; default: 0.
    """
    if actual.shape != expected.shape:
        shapes = f"shape {list(actual.shape)}, not {list(expected.shape)}"
        return Difference(f"{what}, which has {shapes}", float("inf"))
    values, other = actual.detach().double(), expected.detach().double()
    same = (values == other) | (values.isnan() & other.isnan())
    apart = torch.where(same, 0.0, (values - other).abs()).nan_to_num(nan=float("inf"))
    reference = torch.where(other.isfinite(), other.abs(), 0.0)
    if valid is not None:
        apart, reference = apart * 1.0, reference * 1.0
        apart[~valid.expand(apart.shape)] = 0.0
        reference[~valid.expand(apart.shape)] = 0.0
    if not apart.numel():
        return Difference(what, 0.0)
    at = int(apart.argmax())
    amount = apart.flatten()[at].item() / max(1.0, reference.max().item())
    return Difference(what, amount, _position(apart.shape, at, axes, first or {}))


def largest(differences: Iterable[Difference]) -> Difference:
    """Return the largest of several differences; of equal ones, the first."""
    return max(differences, key=lambda candidate: candidate.amount, default=Difference("", 0.0))


def _position(shape: Sequence[int], at: int, axes: Sequence[Axis], first: Mapping[str, int]) -> str:
    """Return the index of an element, with the names of its axes."""
    indices: list[int] = []
    for size in reversed(shape):
        indices.insert(0, at % size)
        at //= size
    names = [str(axis) if isinstance(axis, str) else "" for axis in axes]
    names += [""] * (len(indices) - len(names))
    parts = (
        (name, index + first.get(name, 0)) for name, index in zip(names, indices, strict=False)
    )
    return ", ".join(f"{name}={index}" if name else str(index) for name, index in parts)
