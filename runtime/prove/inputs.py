"""Random inputs with padding, and what is padding in every value of a graph.

The padding of a time axis `S` is marked by each input of kind `mask` whose last axis it is, or a
multiple such as `4*S`, which is masked in groups of 4 positions.  Rows are padded at their ends, as
batches are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import torch
from torch import Tensor

from ...graphs.ir.graph import Graph
from ...graphs.ir.value_type import Axis, ValueType, evaluate, names_of, terms_of, time_axes
from ..codegen.examples import example_inputs

Masks = Mapping[str, list[tuple[tuple[Axis, ...], Tensor]]]
"""Time axis to the axes and values of each mask of its padding."""
Inputs = dict[str, Tensor]


def mask_inputs(graph: Graph) -> dict[str, list[str]]:
    """Return each time axis that has a mask, with the inputs that mask it."""
    times, masks = time_axes(graph.spec.axes), dict[str, list[str]]()
    for name, type_ in graph.inputs.items():
        axis, _ = _masked(type_)
        if axis in times:
            masks.setdefault(axis, []).append(name)
    return masks


def _masked(type_: ValueType) -> tuple[str, int]:
    """Return the axis that a mask is of, and how many of its positions each position has."""
    last = type_.axes[-1] if type_.kind == "mask" and type_.axes else 0
    return multiple(last) or ("", 1)


def draw(
    graph: Graph, sizes: Mapping[str, int], seed: int, *, padded: Collection[str] = ()
) -> Inputs:
    """Return random inputs in the default dtype.

    Args:
        graph: a checked graph.
        sizes: size of each axis.
        seed: seed of the values.
        padded: time axes whose masks exclude the ends of rows; other masks are true everywhere.
    """
    generator = torch.Generator().manual_seed(seed)
    inputs = example_inputs(graph, sizes, seed=seed, padding=False)
    drawn: dict[tuple[Axis, ...], Tensor] = {}
    for name, type_ in graph.inputs.items():
        if inputs[name].is_floating_point():
            inputs[name] = inputs[name].to(torch.get_default_dtype())
        axis, factor = _masked(type_)
        if axis in padded:
            axes = (*type_.axes[:-1], axis)
            if axes not in drawn:
                drawn[axes] = prefixes(inputs[name][..., ::factor].shape, generator)
            inputs[name] = drawn[axes].repeat_interleave(factor, -1)
    return inputs


def prefixes(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Return a mask that is true up to a random length along the last axis.

    Where there are several rows, the first has no padding; the last has some, unless the axis has
    only one position.
    """
    longest = shape[-1]
    lengths = torch.randint(1, longest + 1, shape[:-1], generator=generator).flatten()
    if len(lengths) > 1:
        lengths[0] = longest
    if longest > 1:
        lengths[-1] = torch.randint(1, longest, (), generator=generator)
    return torch.arange(longest) < lengths.view(*shape[:-1], 1)


def masks_of(graph: Graph, inputs: Mapping[str, Tensor]) -> Masks:
    """Return the masks of the padding of each time axis that has any."""
    masks: dict[str, list[tuple[tuple[Axis, ...], Tensor]]] = {}
    for axis, names in mask_inputs(graph).items():
        for name in names:
            type_ = graph.inputs[name]
            mask = inputs[name][..., :: _masked(type_)[1]]
            masks.setdefault(axis, []).append(((*type_.axes[:-1], axis), mask))
    return masks


def comparable(type_: ValueType, masks: Collection[str]) -> bool:
    """Return whether the padding of a value is known: its axes are no sums such as `T+1`."""
    return all(not names_of(axis) & set(masks) or multiple(axis) is not None for axis in type_.axes)


def multiple(axis: Axis) -> tuple[str, int] | None:
    """Return name and factor of an axis such as `T` or `2*T`; None for sums and numbers."""
    terms = terms_of(axis)
    if len(terms) != 1 or "" in terms:
        return None
    [(name, factor)] = terms.items()
    return name, factor


def valid(type_: ValueType, value: Tensor, masks: Masks) -> Tensor:
    """Return a mask that is true outside padding, and can be broadcast to a value.

    Args:
        type_: type of the value; its axes must be `comparable`.
        value: a tensor whose first axes are those of the type.
        masks: masks of the padding of time axes.
    """
    valid_mask = torch.ones([1] * value.dim(), dtype=torch.bool)
    for dim, axis in enumerate(type_.axes):
        parsed_axis = multiple(axis) if names_of(axis) else None
        for mask_axes, mask in masks.get(parsed_axis[0], ()) if parsed_axis else ():
            long = (
                mask.repeat_interleave(parsed_axis[1], -1)
                if parsed_axis and parsed_axis[1] > 1
                else mask
            )
            valid_mask = valid_mask & _aligned(long, mask_axes, type_.axes, dim, value.dim())
    return valid_mask


def _aligned(
    mask: Tensor, mask_axes: tuple[Axis, ...], axes: tuple[Axis, ...], last: int, rank: int
) -> Tensor:
    """Return a mask whose axes stand where a value has them, with size 1 elsewhere.

    A mask axis that the value does not have is reduced: a position is valid if it is so everywhere.

    Args:
        mask: the mask.
        mask_axes: names of its axes; the last one is the time axis.
        axes: axes of the value.
        last: which of these the last axis of the mask stands for.
        rank: number of axes of the value.
    """
    places = [axes.index(axis) if axis in axes else None for axis in mask_axes[:-1]] + [last]
    for dim in reversed(range(mask.dim() - 1)):
        if places[dim] is None:
            mask = mask.all(dim)
            del places[dim]
    order = sorted(range(mask.dim()), key=lambda dim: places[dim] or 0)
    shape = [1] * rank
    for dim in order:
        shape[places[dim] or 0] = mask.size(dim)
    return mask.permute(order).reshape(shape)


def other_values(type_: ValueType, value: Tensor, generator: torch.Generator) -> Tensor:
    """Return values of the same type that differ from the given ones everywhere, if possible.

    Lengths and positions stay, because they describe the other inputs.
    """
    if type_.kind in ("ids", "label"):
        size = evaluate(type_.size or 1, {})
        more = torch.randint(1, max(2, size), value.shape, generator=generator)
        return (value + more) % size
    if type_.kind == "mask":
        return ~value
    if value.is_floating_point():
        return value + 5.0 + 5.0 * torch.rand(value.shape, generator=generator, dtype=value.dtype)
    return value


def with_other_padding(graph: Graph, inputs: Mapping[str, Tensor], axis: str, seed: int) -> Inputs:
    """Return inputs with other values at the padding of one time axis; masks stay."""
    generator, masks = torch.Generator().manual_seed(seed), masks_of(graph, inputs)
    only = {axis: masks[axis]}
    changed = dict(inputs)
    for name, type_ in graph.inputs.items():
        on_axis = any(names_of(type_axis) & {axis} for type_axis in type_.axes)
        if type_.kind != "mask" and on_axis and comparable(type_, only):
            value = inputs[name]
            other = other_values(type_, value, generator)
            changed[name] = torch.where(valid(type_, value, only), value, other)
    return changed


def with_more_padding(
    graph: Graph, inputs: Mapping[str, Tensor], sizes: Mapping[str, int], axis: str, seed: int
) -> Inputs | None:
    """Return inputs with more padding at the end of one time axis.

    Args:
        graph: a checked graph.
        inputs: inputs of which some rows are padded.
        sizes: new sizes, of which that of the axis is larger.
        axis: the time axis.
        seed: seed of the values in the new padding.

    Returns:
        The inputs; None if an input has a sum such as `T+1` as an axis, so that it is unknown
        which of its positions belong to the padding.
    """
    if not all(comparable(type_, {axis}) for type_ in graph.inputs.values()):
        return None
    drawn = draw(graph, sizes, seed)
    padded_inputs: Inputs = {}
    for name, type_ in graph.inputs.items():
        value = inputs[name]
        if not any(names_of(type_axis) & {axis} for type_axis in type_.axes):
            padded_inputs[name] = value
            continue
        padded_inputs[name] = torch.zeros_like(drawn[name]) if type_.kind == "mask" else drawn[name]
        padded_inputs[name][first(value)] = value
    return padded_inputs


def first(value: Tensor) -> tuple[slice, ...]:
    """Return the index of the part of a larger tensor that has the shape of `value`."""
    return tuple(slice(0, size) for size in value.shape)


def on_axis(types: Mapping[str, ValueType], axis: str) -> Iterator[tuple[str, ValueType]]:
    """Yield the values of a mapping that have an axis, except losses."""
    for name, type_ in types.items():
        if axis in type_.axes and type_.kind != "loss":
            yield name, type_
