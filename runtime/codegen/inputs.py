"""Inputs of a built module: their check before an eager forward pass.

The check compares kinds, ranks, sizes and devices.  It reads no values, so it never waits for an
accelerator; ids outside the vocabulary are not detected.  Code that torch compiles or exports
does not contain it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from ...graphs.ir.value_type import ValueType, dtype_of, evaluate, terms_of
from ...specs.findings import InputError, did_you_mean

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_FITS: Mapping[str, Callable[[torch.dtype], bool]] = {
    "integer": lambda dtype: dtype in _INTEGERS,
    "bool": lambda dtype: dtype == torch.bool,
    "float": lambda dtype: dtype.is_floating_point,
}
"""Kind of dtype to the test whether a dtype is of this kind."""


def checked_call(types: Mapping[str, ValueType], flags: Collection[str] = ()) -> Callable[..., Any]:
    """Return a `__call__` for a module with these inputs, which checks them when it runs eagerly.

    Args:
        types: name of each input to its type.
        flags: further arguments, which are not checked.
    """
    names = tuple(types)
    wanted = {name: (dtype_of(one.kind), len(one.axes)) for name, one in types.items()}
    plain = nn.Module.__call__

    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 - becomes a method
        if not torch.compiler.is_compiling():
            named = {name: value for name, value in kwargs.items() if name not in flags}
            if args or named.keys() != wanted.keys():
                _refuse_names(self, names, args, named)
            check_inputs(self, types, wanted, named)
        return plain(self, *args, **kwargs)

    return __call__


def check_inputs(
    model: nn.Module,
    types: Mapping[str, ValueType],
    wanted: Mapping[str, tuple[str, int]],
    given: Mapping[str, Any],
) -> None:
    """Check the inputs of a forward pass.

    Args:
        model: the module that takes them.
        types: type of each input.
        wanted: kind of dtype and rank of each input.
        given: value of each input.

    Raises:
        InputError: an input is not a tensor, has a wrong kind of dtype, a wrong rank, a size that
            differs from its type or from another input, or is not on the device of the weights.
    """
    weight = next(model.parameters(), None)
    sizes: dict[str, int] = {}
    for name, (kind, rank) in wanted.items():
        value = given[name]
        if not isinstance(value, Tensor):
            what = type(value).__name__
            _refuse(name, types, f"is of type {what}, not a tensor", "pass a torch.Tensor")
        if not _FITS[kind](value.dtype):
            _refuse(name, types, f"has dtype {_word(value)}, not {kind}", _CONVERT[kind])
        shape = value.shape
        if len(shape) != rank:
            help_ = "add the batch axis, such as x[None]" if len(shape) < rank else "reshape it"
            _refuse(name, types, f"has {len(shape)} axes, not {rank}", help_)
        for axis, size in zip(types[name].axes, shape, strict=True):
            if sizes.setdefault(str(axis), size) != size:
                _refuse_size(name, types, str(axis), given)
        if weight is not None and value.device != weight.device:
            _refuse_device(name, types, value, weight)
    for axis in [axis for axis in sizes if not axis.isidentifier()]:
        _check_size(axis, sizes, types)


_CONVERT = {
    "integer": "pass ids as int64, such as x.long()",
    "bool": "pass a bool tensor, such as ids != pad; True marks positions to attend to",
    "float": "pass a float tensor, such as x.float()",
}


def _word(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _refuse(name: str, types: Mapping[str, ValueType], problem: str, help_: str) -> NoReturn:
    raise InputError(f"input '{name}' {problem}", place=f"{name}: {types[name]}", help=help_)


def _refuse_names(
    model: nn.Module, names: tuple[str, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """Raise an error for missing or unknown inputs, and for those without a name."""
    wanted = f"{type(model).__name__}({', '.join(names)})"
    if args:
        example = ", ".join(f"{name}=..." for name in names)
        raise InputError(
            f"{len(args)} of the inputs {'has' if len(args) == 1 else 'have'} no name",
            place=wanted,
            help=f"inputs have no order: pass them by name, as in model({example})",
        )
    for name in kwargs:
        if name not in names:
            help_ = did_you_mean(name, names) or "remove it"
            raise InputError(f"unknown input '{name}'", place=wanted, help=help_)
    missing = [name for name in names if name not in kwargs]
    raise InputError(
        f"input '{missing[0]}' is missing",
        place=wanted,
        help="weft.example_inputs(model) shows an example of every input",
    )


def _refuse_size(
    name: str, types: Mapping[str, ValueType], axis: str, given: Mapping[str, Any]
) -> None:
    """Raise an error for an axis with two sizes, naming both inputs that disagree."""
    found = {
        f"{other}.shape[{dim}]": given[other].shape[dim]
        for other, type_ in types.items()
        for dim, one in enumerate(type_.axes)
        if str(one) == axis and isinstance(given[other], Tensor) and dim < given[other].dim()
    }
    shown = ", ".join(f"{place} = {size}" for place, size in found.items())
    raise InputError(
        f"axis {axis} has different sizes: {shown}",
        place=f"{name}: {types[name]}",
        help=f"inputs that share the axis {axis} must agree",
    )


def _check_size(axis: str, sizes: dict[str, int], types: Mapping[str, ValueType]) -> None:
    """Raise an error if an axis that is a number or a sum such as `T+1` has another size.

    The size of `S` follows from that of `4*S`, if no input has the axis `S`.
    """
    size, terms = sizes[axis], terms_of(int(axis) if axis.isdecimal() else axis)
    name = next(n for n, type_ in types.items() if axis in map(str, type_.axes))
    unknown = [one for one in terms if one and one not in sizes]
    if len(unknown) > 1:
        return
    if unknown:
        [free] = unknown
        factor = terms[free]
        constant = size - sum(
            times * sizes.get(one, 1) for one, times in terms.items() if one != free
        )
        sizes[free] = max(1, -(-constant // factor))
    wanted = evaluate(int(axis) if axis.isdecimal() else axis, sizes)
    if size == wanted:
        return
    if unknown:
        help_ = f"pad it to {wanted} at the end, such as with torch.nn.functional.pad"
        _refuse(name, types, f"has size {size} on an axis of size {axis}", help_)
    equals = "" if axis.isdecimal() else f" = {axis}"
    _refuse(name, types, f"has size {size} on an axis of size {wanted}{equals}", "reshape it")


def _refuse_device(
    name: str, types: Mapping[str, ValueType], value: Tensor, weight: Tensor
) -> None:
    """Raise an error for an input on another device than the weights."""
    if weight.is_meta:
        raise InputError(
            "the model's weights are on the device 'meta', which has no values",
            place=f"{name}: {types[name]}",
            help="call model.to_empty(device=...) and then model.load_state_dict(...)",
        )
    help_ = f"pass {name}.to('{weight.device}'), or move the model"
    _refuse(name, types, f"is on {value.device}, the weights are on {weight.device}", help_)
