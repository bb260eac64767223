"""Stand-ins: continue with a block whose params are wrong or unknown.

A wrong param gets its default, or another valid value if it has none.  What a block does may
depend on that guess, so it is compared for several valid values: only what they have in common is
used to check other parts of the spec.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

from .block_type import BlockType, Port, Signature
from .value_type import UNKNOWN, ValueType

MOST_VARIANTS = 400
"""Maximum number of params that one check tries in place of wrong ones."""
_TRIED = (True, False, None, 0.25, 1, 8, 512)
"""Values of which at least two are valid for most params."""
MOST_FITTING = 64
"""Largest number that `fitting` tries."""
_DIVISIBLE = 720_720
"""A multiple of all numbers up to 16."""
_ENOUGH = 6
"""Maximum number of other values that are compared for one param."""


@dataclass(frozen=True, slots=True)
class StandIn:
    """The params of one use of a block, with guesses for those that are wrong."""

    params: BaseModel
    others: tuple[BaseModel, ...] = ()
    """The same params with other guesses."""
    doubtful: frozenset[str] = frozenset()
    """The params that are guesses."""
    complete: bool = True
    """Whether `others` has several guesses for each doubtful param."""

    @property
    def variants(self) -> tuple[BaseModel, ...]:
        """All params to compare, the first guess first."""
        return (self.params, *self.others)


def stand_in(
    block: BlockType, values: Mapping[str, Any], doubtful: frozenset[str], most: int
) -> StandIn | None:
    """Return params with guesses for the doubtful ones, or None if no valid params are found.

    Args:
        block: the block.
        values: the valid params.
        doubtful: the params that are wrong, missing or unknown.
        most: maximum number of other guesses.
    """
    fields = block.params.model_fields
    known = {name: value for name, value in values.items() if name not in doubtful}
    for name in doubtful & fields.keys():
        if fields[name].is_required():
            guesses = (block.example.get(name, 1), *_tried(fields[name].annotation))
            known[name] = next((v for v in guesses if _accepts(block, name, v)), None)
    made = _made(block, known)
    if made is None:
        return None
    others: list[BaseModel] = []
    for name in sorted(doubtful & fields.keys()):
        room = min(most, len(others) + _ENOUGH)
        for value in _tried(fields[name].annotation):
            other = _made(block, {**known, name: value}) if len(others) < room else None
            if other is not None and other != made:
                others.append(other)
    return StandIn(made, tuple(others), doubtful, complete=len(others) < most)


class _AnySize(dict[str, int]):
    """Sizes that are multiples of most numbers of heads, whatever their names."""

    def __missing__(self, name: str) -> int:
        return _DIVISIBLE

    def get(self, name: str, default: Any = None) -> Any:
        """Return the default: a size that may be unknown is."""
        return super().get(name, default)


def fitting(block: BlockType, values: Mapping[str, Any], name: str) -> list[int]:
    """Return the numbers that fit the other params as the value of one, if not all do.

    Args:
        block: the block.
        values: the other params.
        name: a param whose values are whole numbers.
    """
    found = []
    for number in range(1, MOST_FITTING + 1):
        made = _made(block, {**values, name: number})
        if made is None:
            return []
        try:
            block.arguments(made, _AnySize())
        except (KeyError, ValueError):
            continue
        found.append(number)
    return found if len(found) < MOST_FITTING else []


def _made(block: BlockType, values: Mapping[str, Any]) -> BaseModel | None:
    try:
        return block.params.model_validate_json(json.dumps(values, default=str), strict=True)
    except ValidationError:
        return None


def _accepts(block: BlockType, name: str, value: Any) -> bool:
    """Return whether a value is valid for one param, whatever the others are."""
    try:
        block.params.model_validate_json(json.dumps({name: value}), strict=True)
    except ValidationError as errors:
        return all(error["loc"][:1] != (name,) for error in errors.errors())
    return True


def _tried(annotation: Any) -> tuple[Any, ...]:
    """Return values to try for a param, by its annotation."""
    return tuple(dict.fromkeys(choices(annotation))) or _TRIED


def choices(annotation: Any) -> Iterator[Any]:
    """Yield the values of the literals in an annotation, such as that of a param."""
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
    else:
        for inner in get_args(annotation):
            yield from choices(inner)


def common_signature(block: BlockType, params: StandIn, wired: frozenset[str]) -> Signature:
    """Return what the signatures for all guesses have in common.

    A port that only some guesses have is optional; an axis that depends on the guess is unknown.
    """
    first = block.signature(params.params, wired)
    if not params.doubtful:
        return first
    others = [block.signature(other, wired) for other in params.others]
    same = {
        name: kind
        for name, kind in first.behavior.items()
        if params.complete and all(other.behavior.get(name) == kind for other in others)
    }
    outputs = tuple(
        port
        for port in _common_ports(first, others, lambda each: each.outputs)
        if all(any(port.name == own.name for own in other.outputs) for other in others)
    )
    return replace(
        first,
        inputs=_common_ports(first, others, lambda each: each.inputs),
        outputs=outputs,
        behavior=same,
    )


def _common_ports(
    first: Signature, others: list[Signature], side: Callable[[Signature], tuple[Port, ...]]
) -> tuple[Port, ...]:
    ports = {port.name: port for port in side(first)}
    for other in others:
        own = {port.name: port for port in side(other)}
        for name in ports.keys() | own.keys():
            if ports.get(name) is own.get(name):
                continue  # `port` is cached, so this is the rule
            if name in ports and name in own:
                optional = ports[name].optional or own[name].optional
                type_ = _common_type(ports[name].type, own[name].type)
                ports[name] = replace(ports[name], type=type_, optional=optional)
            else:
                ports[name] = replace(ports.get(name) or own[name], optional=True)
    return tuple(ports.values())


def _common_type(one: ValueType, other: ValueType) -> ValueType:
    if one == other:
        return one
    axes: tuple[int | str, ...] = ("...",)
    if len(one.axes) == len(other.axes):
        pairs = zip(one.axes, other.axes, strict=True)
        axes = tuple(a if a == b else UNKNOWN for a, b in pairs)
    return ValueType(one.kind, axes, one.size if one.size == other.size else UNKNOWN)
