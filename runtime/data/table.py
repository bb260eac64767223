"""Tables: the prepared rows of a split, and their batches as named tensors.

Axes in this file:

    B  rows in the batch    T  positions of the longest row, for each time axis
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...specs.findings import InputError
from .columns.fitting import Fitting
from .columns.noise import Noise
from .plans.epochs import documents_of
from .plans.lengths import LengthSummary, RowValues, summarized
from .plans.planning import START, DataPosition, plan_rows_in_order, stream_plans
from .plans.segments import plan_segments
from .shards.arrays import Array

if TYPE_CHECKING:
    from pathlib import Path

    from .columns.column import Column
    from .plans.mixture import Weights
    from .plans.plan import Rows
    from .settings import BatchSettings
    from .shards.corpus import Corpus


@dataclass(frozen=True)
class Batch:
    """Rows of a table as tensors."""

    inputs: dict[str, Tensor]
    """Inputs of an objective, by name."""
    rows: Rows
    """Rows of the table; shape (B,)."""
    tokens: Mapping[str, int]
    """Number of non-padding positions of each input with a time axis."""
    shifted: Mapping[str, int] = field(default_factory=dict)
    """Number of positions up to the last non-padding id of each text, once it is shifted right."""
    first: NDArray[np.bool_] | None = None
    """Whether each row begins a document, (B,); None if rows are not segments of documents."""

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """Return the batch on another device."""
        moved = {
            name: tensor.to(device, non_blocking=non_blocking)
            for name, tensor in self.inputs.items()
        }
        return replace(self, inputs=moved)

    def pinned(self) -> Batch:
        """Return the batch in pinned memory, from which a GPU copies without blocking."""
        return replace(
            self, inputs={name: tensor.pin_memory() for name, tensor in self.inputs.items()}
        )


class Table:
    """Prepared rows of one split, read from disk on demand."""

    def __init__(self, corpus: Corpus, columns: Mapping[str, Column], digest: str = "") -> None:
        """Combine stored arrays with their columns.

        Args:
            corpus: the stored arrays.
            columns: columns by name.
            digest: SHA-256 digest of the stored arrays, if it is known.

        Raises:
            InputError: the arrays are not those of the columns.
        """
        self.corpus, self.columns, self.digest = corpus, columns, digest
        self.folder: Path = corpus.folder
        self.report: dict[str, Any] = corpus.report
        """Rows read, kept and dropped."""
        self.sources: dict[str, int] = corpus.sources
        """Rows of each source, in order; empty if the rows are of one source."""
        self.fitting = Fitting()
        """What the inputs of the objective require of the lengths of batches."""
        self._arrays = {name: _arrays_of(corpus, column) for name, column in columns.items()}

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.corpus)

    @cached_property
    def lengths(self) -> dict[str, RowValues]:
        """Positions of each row on each time axis, including begin and end tokens; (rows,).

        Columns that share an axis, such as a text and its tags, are counted once.  They are read
        where they are indexed, and an InputError is raised then if the stored offsets are damaged.
        """
        lengths_by_name = {
            name: column.lengths(self._arrays[name]) for name, column in self.columns.items()
        }
        return {name: lengths for name, lengths in lengths_by_name.items() if lengths is not None}

    @cached_property
    def summary(self) -> LengthSummary:
        """What must be known of the lengths of all rows, by time axis.

        Raises:
            InputError: the stored offsets are damaged.
        """
        return summarized(self.lengths.values())

    @property
    def samples(self) -> bool:
        """Whether rows have other lengths in each epoch, by sub-word sampling or noise."""
        return any(column.samples for column in self.columns.values())

    def sampled_lengths(self, rows: Rows, noise: tuple[int, int]) -> dict[str, NDArray[np.int64]]:
        """Return the `lengths` of some rows in an epoch of training, (B,)."""
        sampled = {name: lengths[rows] for name, lengths in self.lengths.items()}
        for name, column in self.columns.items():
            lengths = column.sampled_lengths(self._arrays[name], rows, Noise(*noise, self.sources))
            sampled |= {} if lengths is None else {name: lengths}
        return sampled

    @property
    def axes(self) -> dict[str, RowValues]:
        """The lengths, as plans of batches need them."""
        return self.lengths

    @cached_property
    def starts(self) -> RowValues | None:
        """Whether each row begins a document, (rows,); None if rows are not segments."""
        candidates = (column.starts(self._arrays[name]) for name, column in self.columns.items())
        return next((starts for starts in candidates if starts is not None), None)

    def collate(self, rows: Rows, *, noise: tuple[int, int] | None = None) -> dict[str, Tensor]:
        """Return the inputs of some rows.

        Args:
            rows: row numbers; shape (B,), not empty.
            noise: seed and epoch, which determine sub-word sampling and noise; None has neither.
        """
        drawn = None if noise is None else Noise(*noise, self.sources)
        return self.fitting.fit(_collated(self.columns, self._arrays, rows, drawn))

    def batch(self, rows: Rows, *, noise: tuple[int, int] | None = None) -> Batch:
        """Return some rows as a batch; the arguments are those of `collate`."""
        batch = _counted(self.columns, self.collate(rows, noise=noise), rows)
        return batch if self.starts is None else replace(batch, first=self.starts[rows])

    def tokens(self, rows: Rows) -> dict[str, int]:
        """Return the number of positions of some rows on each time axis, without padding.

        They follow from the stored lengths: with sub-word sampling, a batch has other numbers.
        """
        return {name: int(lengths[rows].sum()) for name, lengths in self.lengths.items()}

    def stream(
        self,
        settings: BatchSettings,
        seed: int,
        *,
        at: DataPosition = START,
        pin: bool = False,
        weights: Weights = (),
    ) -> Iterator[tuple[DataPosition, Batch]]:
        """Yield batches, each with the position after it, epoch after epoch, for training.

        When called with a position that it yielded before, it resumes with the batch that followed.
        `pin` returns batches in pinned memory, for a GPU; `prefetch` makes them ahead of time in
        another thread.  `weights` are those of `EpochRows`.

        Raises:
            InputError: as for `stream_plans`.
        """
        for after, rows in stream_plans(self, settings, seed, at=at, weights=weights):
            batch = self.batch(rows, noise=(seed, after.epoch))
            yield after, batch.pinned() if pin else batch

    def rows_of(self, source: str) -> slice:
        """Return the rows of a source.

        Raises:
            ValueError: there is no such source.
        """
        names = [*self.sources]
        begin = sum(self.sources[name] for name in names[: names.index(source)])
        return slice(begin, begin + self.sources[source])

    def in_order(
        self, settings: BatchSettings, source: str | None = None, share: tuple[int, int] = (0, 1)
    ) -> Iterator[Batch]:
        """Yield every row once, in a fixed order, for evaluation.

        From short to long, or for segments in the order of each document.

        Args:
            settings: limits of a batch.
            source: source of the rows; None for all rows.
            share: number of the first batch that is read, and how many it is to the next.
        """
        part = slice(0, len(self)) if source is None else self.rows_of(source)
        lengths = [column_lengths[part] for column_lengths in self.lengths.values()]
        if self.starts is not None:
            longest = max(int(column_lengths.max(initial=0)) for column_lengths in lengths)
            plan = plan_segments(documents_of(self.starts[part]), longest, settings)
        else:
            plan = plan_rows_in_order(lengths, settings, count=part.stop - part.start)
        for rows in islice(plan, share[0], None, share[1]):
            yield self.batch(part.start + rows)


def batch_of(
    columns: Mapping[str, Column],
    values: Sequence[Mapping[str, Any]],
    fitting: Fitting | None = None,
) -> Batch:
    """Return a batch of raw values, such as those of a test set, in their order.

    Args:
        columns: the columns whose inputs are wanted.
        values: for each row, its values by column; not empty.
        fitting: what the inputs require of the lengths; by default nothing.

    Raises:
        InputError: a value is invalid or missing.
    """
    encoded: dict[str, list[Mapping[str, NDArray[Any]]]] = {name: [] for name in columns}
    for number, row in enumerate(values):
        for name, value in encode_row(columns, row, f"row {number}").items():
            encoded[name].append(value)
    arrays = {
        name: {
            key: Array.of(kind, (row[key] for row in encoded[name]))
            for key, kind in column.fields.items()
        }
        for name, column in columns.items()
    }
    rows = np.arange(len(values))
    inputs = (fitting or Fitting()).fit(_collated(columns, arrays, rows, None))
    return _counted(columns, inputs, rows)


def segment_batches(
    columns: Mapping[str, Column],
    values: Sequence[Mapping[str, Any]],
    fitting: Fitting | None = None,
) -> Iterator[Batch] | None:
    """Yield the segments of raw documents in batches, of which each continues the one before.

    Args:
        columns: the columns whose inputs are wanted.
        values: for each document, its values by column; not empty.
        fitting: as for `batch_of`.

    Returns:
        The batches; None if no column divides documents.

    Raises:
        InputError: a value is invalid.
    """
    segments = {
        name: [column.segments(row[name]) for row in values] for name, column in columns.items()
    }
    documents = {
        n: [d for d in column_segments if d is not None] for n, column_segments in segments.items()
    }
    name = next((name for name, column_documents in documents.items() if column_documents), None)
    return None if name is None else _in_turn(columns, name, documents[name], fitting or Fitting())


def _in_turn(
    columns: Mapping[str, Column],
    name: str,
    documents: Sequence[Sequence[Mapping[str, Any]]],
    fitting: Fitting,
) -> Iterator[Batch]:
    """Yield the first segments of all documents, then the second ones, and so on."""
    begins = np.cumsum([0, *map(len, documents)])
    for turn in range(max(map(len, documents))):
        present = [at for at, document in enumerate(documents) if turn < len(document)]
        arrays = {
            name: {
                key: Array.of(kind, (documents[at][turn][key] for at in present))
                for key, kind in columns[name].fields.items()
            }
        }
        inputs = fitting.fit(
            _collated({name: columns[name]}, arrays, np.arange(len(present)), None)
        )
        batch = _counted({name: columns[name]}, inputs, begins[present] + turn)
        yield replace(batch, first=np.full(len(present), turn == 0))


def encode_row(
    columns: Mapping[str, Column], row: Mapping[str, Any], location: str
) -> dict[str, Mapping[str, NDArray[Any]]]:
    """Return the encoded values of one row, by column.

    Args:
        columns: columns to encode.
        row: values by column; it may have more.
        location: place of the row, for messages.

    Raises:
        InputError: a value is invalid or missing.
    """
    try:
        encoded = {}
        for name, column in columns.items():
            if name not in row:
                raise InputError(f"the row has no value for the column '{name}'")  # noqa: TRY301
            column.check(row[name], row)
            encoded[name] = column.encode(row[name])
    except InputError as error:
        if error.location:
            raise
        raise InputError(error.problem, location=location, help=error.help) from error
    return encoded


def array_name(column: str, key: str) -> str:
    """Return the name under which a corpus stores an array of a column."""
    return f"{column}.{key}" if key else column


def _arrays_of(corpus: Corpus, column: Column) -> dict[str, Array]:
    """Return the stored arrays of a column.

    Raises:
        InputError: an array is missing.
    """
    arrays = {}
    for key in column.fields:
        name = array_name(column.name, key)
        if name not in corpus.arrays:
            raise InputError(
                f"the corpus has no array '{name}'",
                location=str(corpus.folder),
                help="delete the folder and prepare the data again",
            )
        arrays[key] = corpus.arrays[name]
    return arrays


def _collated(
    columns: Mapping[str, Column],
    arrays: Mapping[str, Mapping[str, Array]],
    rows: Rows,
    noise: Noise | None,
) -> dict[str, Tensor]:
    inputs: dict[str, Tensor] = {}
    for name, column in columns.items():
        inputs |= column.collate(arrays[name], rows, inputs, noise)
    return inputs


def _counted(columns: Mapping[str, Column], inputs: dict[str, Tensor], rows: Rows) -> Batch:
    tokens: dict[str, int] = {}
    shifted: dict[str, int] = {}
    for column in columns.values():
        tokens |= column.tokens(inputs)
        shifted |= column.shifted_tokens(inputs)
    return Batch(inputs, rows, tokens, shifted)
