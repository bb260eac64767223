"""Plan of an import: the line of a table for each target weight.

Here, "target" weights are the parameters of the spec and "source" tensors those of the other
library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ....plugin import Finding, SpecError, pointer
from ....specs.expressions import ExpressionError
from .config import Configuration
from .layout import TensorLayout
from .names import filled, matcher, numbers_of
from .table import ImportTable, Weight


@dataclass(frozen=True, slots=True)
class Origin:
    """The line of a table for one target weight."""

    pattern: str
    """Left side of the line."""
    weight: Weight
    """Its right side, with the placeholders in names replaced, except one that is stacked."""
    numbers: Mapping[str, int]
    """Values of the placeholders that stand for numbers."""

    def layout(self, config: Configuration) -> TensorLayout:
        """Return the layout of the weight in its source tensor.

        Raises:
            ExpressionError: an expression cannot be evaluated, or is not a whole number.
        """
        weight = self.weight
        return TensorLayout(
            split=tuple(
                None if sizes is None else tuple(self._whole(size, config) for size in sizes)
                for sizes in weight.split
            ),
            take=tuple(self._taken(item, config) for item in weight.take),
            permute=weight.permute,
        )

    def names(self, config: Configuration) -> list[tuple[str, ...]]:
        """Return the alternative names of each source tensor; one, if none are stacked.

        Raises:
            ExpressionError: the number of stacked tensors cannot be evaluated.
        """
        stack = self.weight.stack
        if stack is None:
            return [self.weight.names]
        [(hole, count)] = stack.items()
        most = self._whole(count, config)
        return [
            tuple(filled(name, {hole: str(number)}) for name in self.weight.names)
            for number in range(most)
        ]

    def number(self, written: float | str, config: Configuration) -> float:
        """Return a factor or a summand.

        Raises:
            ExpressionError: it cannot be evaluated, or is not a number.
        """
        value = config.value_of(written, self.numbers)
        if isinstance(value, bool) or not isinstance(value, int | float):
            msg = f"'{written}' is not a number"
            raise ExpressionError(msg)
        return value

    def _taken(self, item: Any, config: Configuration) -> int | tuple[int, int | None] | None:
        if not isinstance(item, tuple):
            return None if item is None else self._whole(item, config)
        last = None if item[1] is None else self._whole(item[1], config)
        return self._whole(item[0], config), last

    def _whole(self, written: int | str, config: Configuration) -> int:
        """Return the value of a number or an expression.

        Raises:
            ExpressionError: it cannot be evaluated, or is not a whole number.
        """
        value = config.value_of(written, self.numbers)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            msg = f"'{written}' is {value}, which is not a whole number"
            raise ExpressionError(msg)
        return value


def assigned(
    table: ImportTable, source: str, paths: Iterable[str]
) -> tuple[dict[str, Origin], list[str]]:
    """Match each target path with a pattern of the table.

    Args:
        table: patterns and their weights.
        source: file of the table, for findings.
        paths: paths of the target weights.

    Returns:
        The line of each path, and the paths that match no pattern.

    Raises:
        SpecError: a path matches two patterns, or a name has no value.
    """
    paths = tuple(paths)
    patterns = [(path, matcher(path), weight) for path, weight in table.weights.items()]
    origins: dict[str, Origin] = {}
    without: list[str] = []
    twice: list[Finding] = []
    for path in paths:
        fits = [
            (pattern, fit.groupdict(), weight)
            for pattern, rule, weight in patterns
            if (fit := rule.fullmatch(path))
        ]
        if not fits:
            without.append(path)
            continue
        pattern, holes, weight = fits[0]
        try:
            names = tuple(filled(name, holes) for name in weight.names)
        except ExpressionError as error:
            at = pointer("weights", pattern)
            twice.append(Finding(code="I01", at=at, problem=str(error), source=source))
            continue
        renamed = weight.model_copy(update={"names": names})
        origins[path] = Origin(pattern, renamed, numbers_of(holes))
        if fits[1:]:
            problem = f"'{path}' matches both '{pattern}' and '{fits[1][0]}'"
            at, help_ = pointer("weights", fits[1][0]), "make one of the patterns more specific"
            twice.append(Finding(code="I01", at=at, problem=problem, help=help_, source=source))
    if twice:
        raise SpecError(twice)
    return origins, without
