"""Columns of a table as predictors use them: one encoded value per row, collated into a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...data.shards.arrays import Array

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from ....graphs.ir.value_type import ValueType
    from ...data.columns.column import Column as Prepared
    from ...data.symbols import Vocabulary


@dataclass(frozen=True, slots=True)
class Encoded:
    """The encoded value of one row."""

    arrays: Mapping[str, NDArray[Any]]
    length: int

    def __len__(self) -> int:
        """Return its number of positions; 1 without a time axis."""
        return self.length


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A prepared column, for predictors."""

    column: Prepared

    @property
    def inputs(self) -> Mapping[str, ValueType]:
        """Types of the tensors that `collate` makes, by name."""
        return self.column.inputs

    def encode(self, value: Any) -> Encoded:
        """Return a raw value as arrays.

        Raises:
            InputError: the value is invalid.
        """
        arrays = self.column.encode(value)
        lengths = self.column.lengths(self._stored([arrays]))
        return Encoded(arrays, 1 if lengths is None else int(lengths[:1].item()))

    def collate(self, values: Sequence[Encoded]) -> Mapping[str, Tensor]:
        """Return padded tensors by input."""
        arrays = self._stored([value.arrays for value in values])
        return self.column.collate(arrays, np.arange(len(values)), {})

    def decode(self, prediction: Any) -> Any:
        """Return the raw value of a prediction."""
        return self.column.decode(prediction)

    def _stored(self, rows: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, Array]:
        return {
            key: Array.of(kind, (row[key] for row in rows))
            for key, kind in self.column.fields.items()
        }


@dataclass(frozen=True, slots=True)
class VocabularyColumn(TableColumn):
    """A prepared column of texts."""

    @property
    def vocabulary(self) -> Vocabulary:
        """Conversion of text to ids and back."""
        text_vocabulary: Vocabulary = self.column.vocabulary  # type: ignore[attr-defined]
        return text_vocabulary

    def truncated(self, value: Encoded, most: int) -> Encoded:
        """Return a text with at most `most` positions: its beginning, and its special tokens."""
        new_length = max(0, len(value.arrays[""]) - max(0, value.length - most))
        arrays = {**value.arrays, "": value.arrays[""][:new_length]}
        return Encoded(arrays, value.length - len(value.arrays[""]) + new_length)


def for_predictors(columns: Mapping[str, Prepared]) -> dict[str, TableColumn]:
    """Return prepared columns as predictors use them."""
    return {
        name: VocabularyColumn(column) if column.has_text else TableColumn(column)
        for name, column in columns.items()
    }
