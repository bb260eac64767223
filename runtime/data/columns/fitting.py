"""Lengths of inputs on axes such as `4*S`: batches are padded until they fit.

An input `[B 4*S]` takes lengths that are multiples of 4, and inputs that share an axis take lengths
that belong together.  Columns have rows of any length, so padding is added at the end: the padding
id, the label -1, False in masks, and 0 in other values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ....graphs.ir.value_type import terms_of
from ....specs.findings import InputError
from ..tokenizer import PAD
from .column_settings import BATCH

if TYPE_CHECKING:
    from torch import Tensor

    from ....graphs.ir.graph import Graph
    from ....graphs.ir.value_type import ValueType

_STARTS = (1, 10_007)
"""Lengths from which fitting ones are searched, to see whether there are any."""
_ROUNDS = 10_000
"""Maximum number of rounds of a search."""


@dataclass(frozen=True, slots=True)
class _Dim:
    """One dimension of an input, whose length is `factor * axis + constant`."""

    input: str
    position: int
    """Index of the dimension."""
    column: str
    """Time axis of the column that fills it; dimensions with the same one have the same length."""
    axis: str
    """Axis of the graph; empty if the length is always `constant`."""
    factor: int
    """0 if the length depends on several axes."""
    constant: int

    @property
    def grows(self) -> bool:
        """Whether the length grows with one axis."""
        return self.factor > 0

    def least(self, length: int) -> int:
        """Return the least size of the axis for which the dimension has at least a length."""
        return max(1, -((self.constant - length) // self.factor))


@dataclass(frozen=True, slots=True)
class Fitting:
    """What the inputs of a graph require of the lengths of the columns that fill them."""

    dims: tuple[_Dim, ...] = ()
    fills: Mapping[str, float] = field(default_factory=dict)
    """Value of the padding of each input."""

    @classmethod
    def of(cls, graph: Graph, columns: Mapping[str, ValueType]) -> Fitting:
        """Return the requirements of a graph.

        Args:
            graph: a checked graph.
            columns: types of the values that fill its inputs, by input, whose time axes have the
                names of columns. Other inputs are left as they are.
        """
        dims = tuple(
            dim
            for name, type_ in graph.inputs.items()
            if name in columns
            for dim in _dims(name, type_, columns[name], graph.spec.axes)
        )
        simple = all(dim.axis and dim.factor == 1 and not dim.constant for dim in dims)
        pairs = {(dim.axis, dim.column) for dim in dims}
        alone = len(pairs) == len({axis for axis, _ in pairs}) == len({col for _, col in pairs})
        if simple and alone:
            return cls()
        fills = {"ids": PAD, "label": -1}
        return cls(dims, {name: fills.get(type_.kind, 0) for name, type_ in graph.inputs.items()})

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield inputs whose axes no lengths of their columns fit, each with the reason."""
        for dims in self._connected():
            *others, last = dict.fromkeys(dim.input for dim in dims)
            wrong = [dim.input for dim in dims if dim.axis and not dim.grows]
            if wrong:
                yield wrong[0], "its axis is not of a form such as S, S+1 or 4*S"
                continue
            starts = _STARTS if all(dim.axis for dim in dims) else _STARTS[:1]
            if any(_searched(dims, {dim.column: n for dim in dims}) is None for n in starts):
                beside = f" and those of {', '.join(others)}" if others else ""
                yield last, f"no length of its column fits its axis{beside}"

    def _connected(self) -> list[list[_Dim]]:
        """Return the dimensions in groups that share neither axes nor columns."""
        groups: list[list[_Dim]] = []
        for dim in self.dims:
            near = [group for group in groups if any(_related(dim, other) for other in group)]
            groups = [group for group in groups if group not in near]
            groups.append([*(other for group in near for other in group), dim])
        return groups

    def length(self, column: str, length: int) -> int:
        """Return the length to which rows of a column are padded at least.

        Args:
            column: a time axis of a column.
            length: the longest row.
        """
        lengths = {dim.column: 1 for dim in self.dims} | {column: length}
        return (_searched(self.dims, lengths) or lengths)[column]

    def fit(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return inputs with padding at the ends of time axes, so that their lengths fit.

        Raises:
            InputError: an input is longer than an axis that is a number.
        """
        fitted = dict(inputs)
        dims = [dim for dim in self.dims if dim.input in inputs]
        lengths: dict[str, int] = {}
        for dim in dims:
            size = inputs[dim.input].size(dim.position)
            lengths[dim.column] = max(size, lengths.get(dim.column, 1))
        lengths = _searched(dims, lengths) or lengths
        for axis_dim in dims:
            value = fitted[axis_dim.input]
            length = lengths[axis_dim.column]
            if not axis_dim.axis and length > axis_dim.constant:
                raise InputError(
                    f"input '{axis_dim.input}' has {length} positions, but its axis has"
                    f" {axis_dim.constant}",
                    help="set 'max_length' of its column, or leave out what is longer",
                )
            if length > value.size(axis_dim.position):
                shape = list(value.shape)
                shape[axis_dim.position] = length
                longer = value.new_full(shape, self.fills[axis_dim.input])
                longer.narrow(axis_dim.position, 0, value.size(axis_dim.position)).copy_(value)
                fitted[axis_dim.input] = longer
        return fitted


def _dims(
    name: str, type_: ValueType, column: ValueType, kinds: Mapping[str, str]
) -> Iterator[_Dim]:
    """Yield the dimensions of an input that are time axes of its column."""
    for index, (axis, of_column) in enumerate(zip(type_.axes, column.axes, strict=False)):
        terms = terms_of(axis)
        names = [term for term in terms if term]
        if of_column == BATCH or isinstance(of_column, int):
            continue
        if any(kinds.get(term) == "batch" for term in names):
            continue
        factor = terms[names[0]] if len(names) == 1 else 0
        graph_axis = names[0] if len(names) == 1 else str(axis) if names else ""
        yield _Dim(name, index, of_column, graph_axis, factor, terms.get("", 0))


def _related(dim: _Dim, other: _Dim) -> bool:
    """Return whether the length of one dimension restricts that of the other."""
    return dim.column == other.column or bool(dim.axis and dim.axis == other.axis)


def _searched(dims: Sequence[_Dim], lengths: Mapping[str, int]) -> dict[str, int] | None:
    """Return the shortest lengths that fit and are at least the given ones; None without any.

    Args:
        dims: the dimensions that they must fit.
        lengths: length of each column.
    """
    lengths = dict(lengths)
    for _ in range(_ROUNDS):
        sizes: dict[str, int] = {}
        for dim in dims:
            if dim.grows:
                least = dim.least(lengths[dim.column])
                sizes[dim.axis] = max(least, sizes.get(dim.axis, 1))
        longer = dict(lengths)
        for axis_dim in dims:
            length = axis_dim.constant + (
                axis_dim.factor * sizes[axis_dim.axis] if axis_dim.grows else 0
            )
            longer[axis_dim.column] = max(length, longer[axis_dim.column])
        if longer == lengths:
            return lengths
        lengths = longer
    return None
