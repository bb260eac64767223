"""The contract of a column: from a value of a record to the inputs of a model, and back.

A column is a subclass of `Column` that its settings name, as those in `settings.py` do.  Its values
are encoded once, into arrays that are stored with the corpus; `collate` makes tensors of some rows
of these arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ....graphs.ir.value_type import ValueType
from ..shards.arrays import Array, ArrayField
from .noise import Noise

if TYPE_CHECKING:
    from torch import Tensor

    from ..plans.lengths import RowValues
    from ..symbols import Vocabulary

Arrays = Mapping[str, Array]
"""Arrays of a column by field; `""` is the main one."""


@dataclass(frozen=True, slots=True)
class ColumnContext:
    """What a column receives when it is created."""

    vocabularies: Mapping[str, Vocabulary]
    """Tokenizers by name; empty while these are being trained."""
    columns: Mapping[str, Column]
    """Columns that are already created, by name."""
    files: Mapping[str, bytes]
    """Files that `Column.files` returned, by name."""


class Column(ABC):
    """A column of a table."""

    axis: str | None = None
    """Name of its time axis: its own name, or that of the column whose axis it shares.  None
    means that all rows have the same shape."""
    has_text: bool = False
    """Whether values are texts that worker processes tokenize; see `TextColumn`."""

    def __init__(self, name: str, settings: Any, context: ColumnContext) -> None:  # noqa: ARG002
        """Store the name and the settings.

        Args:
            name: name of the column.
            settings: settings of the column's type.
            context: tokenizers, other columns, and stored files.
        """
        self.name, self.settings = name, settings
        self.field: str = getattr(settings, "from_", None) or name
        """ArrayField of the reader's records."""

    @property
    @abstractmethod
    def inputs(self) -> Mapping[str, ValueType]:
        """Types of the inputs that `collate` makes, by name; the time axis has the name `axis`."""

    @property
    @abstractmethod
    def fields(self) -> Mapping[str, ArrayField]:
        """Types of the stored arrays; the key `""` is the main one."""

    def fit(self, values: Iterable[Any]) -> None:  # noqa: B027 - optional
        """Learn from all training values, such as their classes; called once, before `encode`."""

    @property
    def fits(self) -> bool:
        """Whether `fit` must be called."""
        return False

    @abstractmethod
    def encode(self, value: Any) -> Mapping[str, NDArray[Any]]:
        """Return one row of each array.

        Raises:
            InputError: the value is invalid; the caller adds the place if it is missing.
        """

    def check(self, value: Any, row: Mapping[str, Any]) -> None:  # noqa: B027 - optional
        """Check a value against the other values of its row, which are by column.

        Raises:
            InputError: they do not fit together.
        """

    def lengths(self, arrays: Arrays) -> RowValues | None:  # noqa: ARG002
        """Return the positions of each row on the column's own time axis; None without one.

        They are an array, or what computes those of some rows when they are read.
        """
        return None

    @property
    def samples(self) -> bool:
        """Whether each epoch of training draws other texts or pieces, so that lengths change."""
        return False

    def sampled_lengths(
        self,
        arrays: Arrays,  # noqa: ARG002
        rows: NDArray[np.int64],  # noqa: ARG002
        noise: Noise,  # noqa: ARG002
    ) -> NDArray[np.int64] | None:
        """Return the `lengths` of some rows in an epoch, (B,); None if they never change."""
        return None

    def starts(self, arrays: Arrays) -> RowValues | None:  # noqa: ARG002
        """Return whether each row begins a document; None if rows are not segments of documents."""
        return None

    def segments(self, value: Any) -> list[Mapping[str, NDArray[Any]]] | None:  # noqa: ARG002
        """Return the encoded rows of one document; None if the column does not divide documents.

        Raises:
            InputError: the value is wrong.
        """
        return None

    @abstractmethod
    def collate(
        self,
        arrays: Arrays,
        rows: NDArray[np.int64],
        collated: Mapping[str, Tensor],
        noise: Noise | None = None,
    ) -> dict[str, Tensor]:
        """Return the inputs of some rows.

        Args:
            arrays: the stored arrays.
            rows: row numbers; shape (B,), not empty.
            collated: inputs of the columns before this one.
            noise: in training, what determines it; None makes inputs without noise.
        """

    def tokens(self, inputs: Mapping[str, Tensor]) -> Mapping[str, int]:  # noqa: ARG002
        """Return the number of non-padding positions of each input with a time axis."""
        return {}

    def shifted_tokens(self, inputs: Mapping[str, Tensor]) -> Mapping[str, int]:  # noqa: ARG002
        """Return the number of positions of each input of ids once it is shifted right.

        They are those up to the last non-padding id of each row, after a token is put before it and
        its last position is dropped.
        """
        return {}

    @abstractmethod
    def decode(self, prediction: Any) -> Any:
        """Return the value that a prediction means, such as the text of ids."""

    def files(self) -> Mapping[str, bytes]:
        """Return the files that a checkpoint needs to use the column, by name."""
        return {}

    @property
    def unseen(self) -> Mapping[str, int]:
        """Unknown values that `encode` received and counted, for the report."""
        return {}


def inputs_of(columns: Mapping[str, Column]) -> dict[str, ValueType]:
    """Return the types of all inputs that columns fill, by name."""
    return {name: type_ for column in columns.values() for name, type_ in column.inputs.items()}
