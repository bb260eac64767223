"""Lengths of shorter sequences: of a slice, and of what a strided kernel reads."""

from __future__ import annotations

from .block_type import MismatchError
from .value_type import Axis, axis_of, terms_of


def every(step: int, axis: Axis, full: Axis, param: str, otherwise: str = "") -> Axis:
    """Return how many positions of an axis are every `step`-th, beginning with the first.

    Args:
        step: distance between the positions.
        axis: the axis.
        full: the axis of the value, for the message.
        param: the param that sets the step, for the message.
        otherwise: a further way out.

    Raises:
        MismatchError: the number is no combination of axes.

    >>> every(2, "4*S+1", "4*S+1", "step"), every(3, 7, 7, "step")
    ('2*S+1', 3)
    """
    terms = terms_of(axis)
    constant = terms.pop("", 0)
    if any(factor % step for factor in terms.values()):
        problem = f"with a {param} of {step}, the length of {full} is not always a whole number"
        help_ = f"give the input an axis such as {step}*T, a multiple to which its column pads"
        raise MismatchError("T03", problem, help=help_ + otherwise)
    counts = {name: factor // step for name, factor in terms.items()}
    return axis_of({**counts, "": -(-constant // step)})
