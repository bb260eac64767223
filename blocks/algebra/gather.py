"""Elements of a value at ids, and the ids of its largest elements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import model_validator

from ...graphs.ir.block_type import BlockType, MismatchError, Port, Signature, port
from ...graphs.ir.graph import Part
from ...graphs.ir.value_type import ValueType
from ..params import Params, no_arguments
from .masking import MASK, mask_port, refuse_other_kinds, refuse_unknown_names
from .patterns import (
    Names,
    Pattern,
    PatternText,
    aligned,
    lower,
    parsed_pattern,
    port_type,
    refuse_permuted,
)
from .reduce import reduction_pattern

_TWO = 2
"""Number of values of `gather`."""


class GatherParams(Params):
    """Params of `gather`."""

    y: PatternText
    """The axes of the value, of the ids and of the result, such as `b s d, b t -> b t d`: the ids
    count along the axis of the value that the result lacks."""

    @model_validator(mode="after")
    def _selects(self) -> Self:
        """Refuse patterns without exactly one axis that is indexed, or in another order."""
        pattern = parsed_pattern(self.y)
        if len(pattern.values) != _TWO:
            msg = f"'{self.y}' has {len(pattern.values)} values, not those of 'x' and of 'ids'"
            raise ValueError(msg)
        x, ids = pattern.values
        indexed = [name for name in x if name not in pattern.result]
        if len(indexed) != 1 or indexed[0] in ids:
            msg = f"'{self.y}': the result must lack one axis of 'x', along which the ids count"
            raise ValueError(msg)
        shared = x[: x.index(indexed[0])]
        order = (*ids, *x[len(shared) + 1 :])
        if ids[: len(shared)] != shared or pattern.result != order:
            msg = (
                f"'{self.y}': 'ids' must begin with the axes of 'x' before '{indexed[0]}', and the"
            )
            msg += " result must have the axes of 'ids', then the others of 'x'"
            raise ValueError(f"{msg}; permute values with einsum@1")
        return self


def _parts(pattern: Pattern) -> tuple[str, int, int]:
    """Return the axis that is indexed, and how many axes only the ids and only x have."""
    x, ids = pattern.values
    (indexed,) = (name for name in x if name not in pattern.result)
    before = x.index(indexed)
    return indexed, len(ids) - before, len(x) - before - 1


def _gather_signature(_: GatherParams, __: frozenset[str]) -> Signature:
    """Return the ports before the types of the wires are known."""
    return Signature(
        inputs=(port("x", "f[...]", "a value of any kind"), port("ids", "f[...]", "indices")),
        outputs=(port("y", "f[...]", "the selected elements"),),
    )


def _gather_typed(params: GatherParams, types: Mapping[str, ValueType]) -> Signature:
    """Return the ports for the types of the wires."""
    x, ids = types["x"], types["ids"]
    pattern = parsed_pattern(params.y)
    port_type(pattern.values[0], x, "x")
    port_type(pattern.values[1], ids, "ids")
    indexed = _parts(pattern)[0]
    _refuse_outside(x, ids, x.axes[pattern.values[0].index(indexed) - len(pattern.values[0])])
    pattern = pattern.with_lead([x, ids])
    axes = [tuple(map(lower, names)) for names in (*pattern.values, pattern.result)]
    return Signature(
        inputs=(
            Port("x", ValueType(x.kind, axes[0], x.size), doc="a value of any kind"),
            Port("ids", ValueType(ids.kind, axes[1], ids.size), doc="indices"),
        ),
        outputs=(Port("y", ValueType(x.kind, axes[2], x.size), doc="the selected elements"),),
        behavior={lower(indexed): "full"},
    )


def _refuse_outside(x: ValueType, ids: ValueType, axis: Any) -> None:
    """Refuse indices that may be beyond the end of an axis.

    Raises:
        MismatchError: they are no integers, or may be too large.
    """
    length = isinstance(axis, int)
    if ids.kind not in (("ids", "label") if length else ("pos",)):
        msg = f"'ids' is {ids}, and the axis of {x} has "
        msg += f"{axis} elements" if length else "as many elements as the batch is long"
        help_ = "wire ids or labels below that number"
        help_ = help_ if length else 'make them positions with elementwise@1 and "kind": "pos"'
        raise MismatchError("T02", msg, port="ids", help=help_)
    if length and isinstance(ids.size, int) and ids.size > axis:
        msg = f"'ids' is {ids}, but the axis of {x} has {axis} elements"
        raise MismatchError("T03", msg, port="ids", help=f"wire such as ids % {axis}")


def _gather_written(part: Part) -> list[str]:
    """Return the lines of `forward`: an index, or a gather where both have leading axes."""
    params: Any = part.params
    pattern = parsed_pattern(params.y)
    _, of_ids, of_x = _parts(pattern)
    # Padding of labels and positions is -1.
    ids = "ids.clamp(min=0)" if part.inputs["ids"].kind in ("label", "pos") else "ids"
    if len(pattern.values[1]) == of_ids:
        return [f"return x[{ids}]"]
    lines = []
    if of_ids == 0:
        ids = f"{ids}.unsqueeze(-1)"
    elif of_ids > 1:
        ids = f"{ids}.flatten(-{of_ids})"
    dim, index = -of_x - 1, ids
    if of_x:
        lines.append(f"index = {ids}")
        nones = ", ".join(["None"] * of_x)
        index = f"index[..., {nones}].expand(*index.shape, *x.shape[-{of_x}:])"
    y = f"x.gather({dim}, {index})"
    if of_ids == 0:
        y += f".squeeze({dim})"
    elif of_ids > 1:
        y += f".unflatten({dim}, ids.shape[-{of_ids}:])"
    return [*lines, f"return {y}"]


GATHER = BlockType(
    name="gather",
    title="{y}",
    mixes="",
    doc="Select elements of a value by ids along one axis; y_t = x_(ids_t).",
    source="torch.gather; numpy: take_along_axis",
    params=GatherParams,
    signature=_gather_signature,
    typed=_gather_typed,
    arguments=no_arguments,
    written=_gather_written,
    example={"y": "b t v, b t -> b t"},
    example_inputs={"x": "f[B T 11]", "ids": "ids:11[B T]"},
)


class ArgmaxParams(Params):
    """Params of `argmax`."""

    y: PatternText
    """The axes of the value and of the result, which lacks one, such as `b t v -> b t`."""
    mask: str = ""
    """The axes of the mask, such as `b v`; needed only where the value has one of them twice."""
    kind: Literal["ids", "label"] = "ids"
    """Kind of the result, if the axis is a number; otherwise, it is `pos`."""

    @model_validator(mode="after")
    def _compares(self) -> Self:
        """Refuse patterns whose result does not lack exactly one axis."""
        pattern = parsed_pattern(self.y)
        names: Names = pattern.values[0]
        if len(pattern.values) > 1 or len(names) != len(pattern.result) + 1:
            msg = f"'{self.y}': the result must lack one axis of a single value"
            raise ValueError(msg)
        refuse_permuted(pattern)
        refuse_unknown_names(self.mask, names, "'mask'")
        return self


def _argmax_signature(_: ArgmaxParams, __: frozenset[str]) -> Signature:
    """Return the ports before the types of the wires are known."""
    output = port("y", "pos[...]", "index of the largest element")
    return Signature(inputs=(port("x", "f[...]", "numbers"), MASK), outputs=(output,))


def _argmax_typed(params: ArgmaxParams, types: Mapping[str, ValueType]) -> Signature:
    """Return the ports for the types of the wires."""
    refuse_other_kinds(types["x"], "argmax@1")
    pattern = reduction_pattern(params.y, params.mask, types)
    names = pattern.values[0]
    (index,) = (number for number, name in enumerate(names) if name not in pattern.result)
    size = types["x"].axes[index - len(names)]
    x = ValueType(types["x"].kind, tuple(map(lower, names)))
    mask = [mask_port(of_mask) for of_mask in pattern.values[1:]] or [MASK]
    axes = tuple(map(lower, pattern.result))
    if params.kind == "label" and not isinstance(size, int):
        msg = f"the result counts positions of {size}, so 'kind' has no effect"
        raise MismatchError("P08", msg, help="remove 'kind', or reduce an axis with a number")
    output = ValueType(params.kind, axes, size) if isinstance(size, int) else ValueType("pos", axes)
    return Signature(
        inputs=(Port("x", x, doc="numbers"), *mask),
        outputs=(Port("y", output, doc="index of the first largest element; 0 if all are masked"),),
        behavior={lower(names[index]): "full"},
    )


def _argmax_written(part: Part) -> list[str]:
    """Return the line of `forward`."""
    params: Any = part.params
    pattern = reduction_pattern(params.y, params.mask, part.inputs)
    names = pattern.values[0]
    (index,) = (number for number, name in enumerate(names) if name not in pattern.result)
    x = "x"
    if len(pattern.values) > 1:
        mask = f"~mask{aligned(names, pattern.values[1])}"
        x = f"x.masked_fill({mask}, torch.finfo(x.dtype).min)"
    return [f"return {x}.argmax({index - len(names)})"]


ARGMAX = BlockType(
    name="argmax",
    title="argmax of {y}",
    mixes="",
    doc="Index of the largest element along one axis, as ids; y = argmax_v x_v.",
    source="numpy: argmax",
    params=ArgmaxParams,
    signature=_argmax_signature,
    typed=_argmax_typed,
    arguments=no_arguments,
    written=_argmax_written,
    example={"y": "b t v -> b t"},
    example_inputs={"x": "f[B T 11]"},
)
