"""Origins: the lines of a table for each target weight.

Here, "target" weights are those to be filled, and "source" tensors those that fill them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ....specs.expressions import ExpressionError
from ....specs.findings import Finding, SpecError, pointer
from .layout import TensorLayout, selected
from .line import Line, Lines, Range
from .names import filled, matcher, numbers_of
from .values import ConfigValues


@dataclass(frozen=True, slots=True)
class LinePart:
    """A line of a table for a target weight, or for a part of it."""

    line: Line
    """The line, with the placeholders in names replaced, except one that is stacked."""
    numbers: Mapping[str, int]
    """Values of the placeholders that stand for numbers."""

    @property
    def factor(self) -> LinePart | None:
        """The line of the tensor that the part is multiplied by."""
        times = self.line.times
        return LinePart(times, self.numbers) if isinstance(times, Line) else None

    def layout(self, values: ConfigValues) -> TensorLayout:
        """Return the layout of the part in its source tensor.

        Raises:
            ExpressionError: an expression cannot be evaluated, or is not a whole number.
        """
        line = self.line
        return TensorLayout(
            split=tuple(
                None if sizes is None else tuple(self._whole(size, values) for size in sizes)
                for sizes in line.split
            ),
            take=self._ranges(line.take, values),
            permute=line.permute,
            tile=tuple(self._whole(count, values) for count in line.tile),
        )

    def region(self, weight: Tensor, values: ConfigValues) -> Tensor:
        """Return the part of a weight that the line fills, as a view.

        Raises:
            ExpressionError: an expression cannot be evaluated, or is not a whole number.
            ValueError: the weight has no such part.
        """
        return selected(weight, self._ranges(self.line.into, values))

    def names(self, values: ConfigValues) -> list[tuple[str, ...]]:
        """Return the alternative names of each source tensor; one, if none are stacked.

        Raises:
            ExpressionError: the number of stacked tensors cannot be evaluated.
        """
        stack = self.line.stack
        if stack is None:
            return [self.line.names] if self.line.names else []
        [(hole, count)] = stack.items()
        return [
            tuple(filled(name, {hole: str(number)}) for name in self.line.names)
            for number in range(self._whole(count, values))
        ]

    def number(self, written: float | str, values: ConfigValues) -> float:
        """Return a factor or a summand.

        Raises:
            ExpressionError: it cannot be evaluated, or is not a number.
        """
        value = values.value_of(written, self.numbers)
        if isinstance(value, bool) or not isinstance(value, int | float):
            msg = f"'{written}' is not a number"
            raise ExpressionError(msg)
        return value

    def _ranges(
        self, written: tuple[int | str | Range | None, ...], values: ConfigValues
    ) -> tuple[int | tuple[int, int | None] | None, ...]:
        return tuple(self._range(item, values) for item in written)

    def _range(self, item: Any, values: ConfigValues) -> int | tuple[int, int | None] | None:
        if not isinstance(item, tuple):
            return None if item is None else self._whole(item, values)
        last = None if item[1] is None else self._whole(item[1], values)
        return self._whole(item[0], values), last

    def _whole(self, written: int | str, values: ConfigValues) -> int:
        """Return the value of a number or an expression.

        Raises:
            ExpressionError: it cannot be evaluated, or is not a whole number.
        """
        value = values.value_of(written, self.numbers)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            msg = f"'{written}' is {value}, which is not a whole number"
            raise ExpressionError(msg)
        return value


@dataclass(frozen=True, slots=True)
class Origin:
    """The lines of a table for one target weight."""

    pattern: str
    """Left side of the lines."""
    parts: tuple[LinePart, ...]
    """Their right sides."""

    def reads(self) -> Iterator[LinePart]:
        """Yield everything that reads source tensors: parts and factors of them."""
        for part in self.parts:
            yield part
            if part.factor is not None:
                yield part.factor


def assigned(
    lines: Lines, source: str, paths: Iterable[str], code: str = "I01", at: str = "/weights"
) -> tuple[dict[str, Origin], list[str]]:
    """Match each target path with a pattern of the table.

    Args:
        lines: patterns and their lines.
        source: file of the table, for findings.
        paths: paths of the target weights.
        code: code of the findings.
        at: JSON Pointer to the lines in the file.

    Returns:
        The lines of each path, and the paths that match no pattern.

    Raises:
        SpecError: a path matches two patterns, or a name has no value.
    """
    patterns = [(pattern, matcher(pattern), parts) for pattern, parts in lines.items()]
    origins: dict[str, Origin] = {}
    without: list[str] = []
    wrong: list[Finding] = []

    def report(pattern: str, problem: str, help_: str = "") -> None:
        line = at + pointer(pattern)
        wrong.append(Finding(code=code, at=line, problem=problem, help=help_, source=source))

    for path in paths:
        fits = [
            (pattern, fit.groupdict(), parts)
            for pattern, rule, parts in patterns
            if (fit := rule.fullmatch(path))
        ]
        if not fits:
            without.append(path)
            continue
        pattern, holes, parts = fits[0]
        try:
            renamed = tuple(LinePart(_renamed(line, holes), numbers_of(holes)) for line in parts)
        except ExpressionError as error:
            report(pattern, str(error))
            continue
        origins[path] = Origin(pattern, renamed)
        if fits[1:]:
            problem = f"'{path}' matches both '{pattern}' and '{fits[1][0]}'"
            report(fits[1][0], problem, "make one of the patterns more specific")
    if wrong:
        raise SpecError(wrong)
    return origins, without


def _renamed(line: Line, holes: Mapping[str, str]) -> Line:
    """Return a line with the placeholders in its names replaced."""
    names = tuple(filled(name, holes) for name in line.names)
    changes: dict[str, Any] = {"names": names}
    if isinstance(line.times, Line):
        changes["times"] = _renamed(line.times, holes)
    return line.model_copy(update=changes)
