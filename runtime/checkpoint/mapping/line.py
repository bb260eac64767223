"""Lines of a table: where a weight comes from, and what is done with it; no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from ....specs.expressions import ExpressionError, is_expression
from ....specs.findings import did_you_mean
from .names import holes_in, uses_in

Number = int | str
"""A number, or an expression."""
Range = tuple[Number, Number | None]
"""First entry, and the one after the last or null."""
_Constant = Annotated[float, Field(ge=-1e30, le=1e30)]


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _factor(value: Any) -> Any:
    """Return a factor, of which a name is expanded to the record of a tensor."""
    return value if is_expression(value) else written_out(value)


class TableRecord(BaseModel):
    """Frozen record; unknown keys are errors."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, use_attribute_docstrings=True
    )


class Line(TableRecord):
    """Origin of a weight, and the operations applied to it, in the order of these keys."""

    names: Annotated[tuple[str, ...], BeforeValidator(_listed), Field(alias="from")] = ()
    """Name or names of the source tensor; at least one exists, and existing ones are equal."""
    stack: Annotated[dict[str, Number], Field(min_length=1, max_length=1)] | None = None
    """A placeholder of the names, and the number of its values from 0 on: the source tensors are
    stacked along a new first axis."""
    split: tuple[Annotated[tuple[Number, ...], Field(min_length=2)] | None, ...] = ()
    """For each axis, the sizes of the axes that it is split into, of which one may be -1; `null`
    keeps it."""
    take: tuple[Number | Range | None, ...] = ()
    """For each axis after splitting, an index, a range (first, and the one after the last or null)
    or null, which takes all."""
    permute: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Order of the first axes after that: `[1, 0]` transposes."""
    tile: tuple[Number, ...] = ()
    """For each axis after that, how many times its entries are repeated one after another; one may
    be -1, for as often as the weight needs."""
    normalize: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Axes of the weight over which it is divided by its Euclidean norm."""
    times: Annotated[float | str | Line | None, BeforeValidator(_factor)] = None
    """Factor to multiply by: a number, or a line whose tensor has axes of the same number, of size
    1 or that of the weight."""
    add: float | str | None = None
    """Number to add after multiplying."""
    into: tuple[Number | Range | None, ...] = ()
    """For each axis of the weight, the index or the range that is filled; null fills all."""
    fill: _Constant | None = None
    """Constant value of the weight if no source tensor exists; `from` may then be omitted.  Among
    several lines, it is that of the entries that no other line fills."""
    unread: _Constant | None = None
    """Number for the elements of the source tensor that no weight reads; without it, there may be
    none."""

    @model_serializer(mode="wrap")
    def _short(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the keys of a line that do something."""
        return {key: value for key, value in handler(self).items() if value not in (None, (), [])}


def written_out(value: Any) -> Any:
    """Expand the short forms of a line, a name or a list of names, to a record."""
    is_name = isinstance(value, str)
    is_names = isinstance(value, list) and all(isinstance(name, str) for name in value)
    return {"from": value} if is_name or is_names else value


def _parts(value: Any) -> Any:
    """Return the parts of a weight as a list: one, unless a list of objects is written."""
    value = written_out(value)
    return [written_out(part) for part in value] if isinstance(value, list | tuple) else [value]


Parts = Annotated[
    tuple[Line, ...],
    BeforeValidator(_parts, json_schema_input_type=str | list[str] | Line | list[Line]),
    Field(min_length=1),
]
"""The lines that fill a weight: one, or several of which each fills a part."""
Lines = Mapping[str, tuple[Line, ...]]
"""Pattern of paths of weights to the lines that fill them."""


def mistakes(lines: Lines) -> Iterator[tuple[str, str, str]]:
    """Yield what is wrong with lines by themselves: pattern, problem and help."""
    for pattern, parts in lines.items():
        if (mistake := mistake_of_pattern(pattern)) is not None:
            yield pattern, *mistake
        for part in parts:
            for problem, help_ in _mistakes(holes_in(pattern), part, several=len(parts) > 1):
                yield pattern, problem, help_


def mistake_of_pattern(pattern: str) -> tuple[str, str] | None:
    """Return what is wrong with a pattern of names, and a way out."""
    if any(piece.count("{") > 1 for piece in pattern.split(".")):
        return f"'{pattern}' has two placeholders between two dots", "join them into one"
    return None


def _mistakes(holes: frozenset[str], line: Line, *, several: bool) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the line of a weight, and what to do about it.

    Args:
        holes: placeholders of its left side.
        line: a line of its right side.
        several: whether other lines fill parts of the same weight.
    """
    if not line.names and line.fill is None:
        yield "a weight needs 'from' or 'fill'", "write at least one of the two"
    if not line.names and line.fill is not None:
        for key in sorted(line.model_fields_set - {"names", "fill"}):
            problem = f"'{key}' has no effect on a weight without a source tensor"
            yield problem, "remove it, or add 'from'"
    if several and not line.into and line.names:
        yield "each of several lines of a weight needs 'into'", "write the part that it fills"
    stacked = frozenset(line.stack or {})
    for hole in sorted(holes & stacked):
        problem = f"'{{{hole}}}' is stacked, but the path on the left side has it too"
        yield problem, "give the placeholder that is stacked another name"
    for name in line.names:
        try:
            uses = uses_in(name)
        except ExpressionError as error:
            yield f"'{name}' cannot be read: {error}", "correct what is in braces"
            continue
        for hole in sorted(uses - holes - stacked):
            problem = f"'{{{hole}}}' of '{name}' is not in the path on the left side"
            yield problem, did_you_mean(hole, holes) or "write a number"
        for hole in sorted(stacked - uses):
            problem = f"'{name}' lacks the placeholder '{{{hole}}}', which is stacked"
            yield problem, f"write '{{{hole}}}' where its number is, or 'tile' to repeat a tensor"
    if isinstance(line.times, Line):
        if line.times.stack or line.times.into or isinstance(line.times.times, Line):
            yield (
                "a factor has 'stack', 'into' or a factor of its own",
                "write it in the outer line",
            )
        yield from _mistakes(holes | stacked, line.times, several=False)
