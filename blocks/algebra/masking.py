"""Masks of a value whose axes have names: which axes a mask has, and how it is aligned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ...graphs.ir.block_type import MismatchError, Port, port
from ...graphs.ir.value_type import Axis, ValueType
from ...specs.findings import did_you_mean
from .patterns import LEAD, Names, axis_names, lower

MASK = port("mask", "mask[...]?", "true at the elements that count")
NUMBERS = frozenset({"f", "bias", "score", "loss"})
"""Kinds of values that are reduced."""


def refuse_unknown_names(text: str, names: Names, what: str) -> None:
    """Refuse names of axes that a value does not have.

    Raises:
        ValueError: there is such a name, or a text that is not a list of names.
    """
    for name in axis_names(text):
        if name not in names or name == LEAD:
            help_ = did_you_mean(name, names)
            msg = f"{what} has the axis '{name}', which 'x' does not have"
            raise ValueError(f"{msg}; {help_}" if help_ else msg)


def expanded(names: Names, type_: ValueType) -> Names:
    """Return a name for every axis of a value, also of those that `...` stands for."""
    count = len(type_.axes) - len(names) + 1
    lead = tuple(f"_{number}" for number in range(count))
    return tuple(inner for name in names for inner in (lead if name == LEAD else (name,)))


def names_of_mask(text: str, names: Names, x: ValueType, mask: ValueType) -> Names:
    """Return the names of the axes of a mask.

    Args:
        text: the names as written; if empty, the axes of the mask are found among those of x.
        names: the names of all axes of x.
        x: the type of the value.
        mask: the type of the mask.

    Raises:
        MismatchError: the mask has other axes than x, or it is not clear which.
    """
    example = 'name the axes of the mask, such as "mask": "b s"'
    if text:
        of_mask = axis_names(text)
        if len(of_mask) != len(mask.axes):
            msg = f"'{text}' names {len(of_mask)} axes of 'mask', which has {len(mask.axes)}"
            raise MismatchError("T04", msg, port="mask", help="name every axis once, in its order")
    else:
        of_mask = tuple(_matching(axis, names, x, example) for axis in mask.axes)
    order = [names.index(name) for name in of_mask]
    if order != sorted(order):
        msg = f"the mask has the axes {' '.join(map(str, mask.axes))} in another order than 'x'"
        raise MismatchError("T03", msg, port="mask", help="permute it with einsum@1")
    name, count = Counter(of_mask).most_common(1)[0] if of_mask else ("", 0)
    if count > 1:
        msg = f"the mask has the axis {mask.axes[of_mask.index(name)]} twice"
        raise MismatchError("T03", msg, port="mask", help=example)
    return of_mask


def _matching(axis: Axis, names: Names, x: ValueType, example: str) -> str:
    """Return the name of the only axis of x that equals an axis of the mask."""
    equal = [name for name, other in zip(names, x.axes, strict=True) if other == axis]
    if len(equal) != 1:
        problem = f"'x' has the axis {axis} of the mask"
        msg = f"{problem} {len(equal)} times" if equal else f"'x' lacks the axis {axis} of the mask"
        help_ = example if equal else f"wire a mask with axes of {x}"
        raise MismatchError("T03", msg, port="mask", help=help_)
    return equal[0]


def refuse_idle_names(text: str, types: Mapping[str, ValueType]) -> None:
    """Refuse names of the axes of a mask that is not wired.

    Raises:
        MismatchError: there are such names.
    """
    if text and "mask" not in types:
        msg = f"the param 'mask' names the axes '{text}', and no mask is wired"
        raise MismatchError("P08", msg, help="wire the port 'mask', or remove the param")


def refuse_other_kinds(x: ValueType, use: str) -> None:
    """Refuse a value that is not a number.

    Raises:
        MismatchError: the value is a mask, ids, or scores of classes.
    """
    if x.kind not in NUMBERS:
        msg = f"{use} needs numbers, and 'x' is of kind {x.kind}"
        help_ = "convert it with elementwise@1, such as where(x, 1.0, 0.0)"
        raise MismatchError("T02", msg, port="x", help=help_)


def mask_port(names: Names) -> Port:
    """Return the port of a mask with some axes."""
    return Port("mask", ValueType("mask", tuple(map(lower, names))), optional=True, doc=MASK.doc)
