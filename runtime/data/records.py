"""Records as rows of columns: which fields are read, and how a row is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ...specs.findings import InputError
from .table import array_name, encode_row

if TYPE_CHECKING:
    from .columns.column import Column
    from .readers.reader import Record
    from .shards.arrays import ArrayField
    from .shards.corpus import CorpusWriter

Value = TypeVar("Value")


def fields_of(columns: Mapping[str, Column]) -> list[str]:
    """Return the fields of the reader's records that columns need, each once."""
    return list(dict.fromkeys(column.field for column in columns.values()))


def values_of(columns: Mapping[str, Column], record: Record) -> dict[str, Any]:
    """Return the values of a record by column."""
    return {name: record.values[column.field] for name, column in columns.items()}


def array_fields(columns: Mapping[str, Column]) -> dict[str, ArrayField]:
    """Return the types of the arrays of columns, by the names under which they are stored."""
    return {
        array_name(name, key): kind
        for name, column in columns.items()
        for key, kind in column.fields.items()
    }


def add_record(
    writer: CorpusWriter,
    columns: Mapping[str, Column],
    all_columns: Mapping[str, Column],
    record: Record,
) -> None:
    """Encode a record and append it to the arrays of some columns."""
    row = values_of(all_columns, record)
    for name, arrays in encode_row(columns, row, record.location).items():
        for key, array in arrays.items():
            writer.arrays[array_name(name, key)].add_row(array)


def placed(record: Record, read: Callable[[], Value]) -> Value:
    """Return what a function reads from a record; an error names the record's place.

    Raises:
        InputError: the function raised one.
    """
    try:
        return read()
    except InputError as error:
        raise InputError(error.problem, location=record.location, help=error.help) from error


def fit_column(column: Column, records: Iterable[Record]) -> None:
    """Let a column learn from the training values; an error names the place of its record.

    Raises:
        InputError: a value is wrong.
    """
    location = ""

    def values() -> Iterator[Any]:
        nonlocal location
        for record in records:
            location = record.location
            yield record.values[column.field]
        location = ""

    try:
        column.fit(values())
    except InputError as error:
        if error.location:
            raise
        raise InputError(error.problem, location=location, help=error.help) from error


def unseen_in(columns: Mapping[str, Column]) -> dict[str, Any]:
    """Return the unknown values of each column for the report, if there are any."""
    unseen = {name: dict(column.unseen) for name, column in columns.items() if column.unseen}
    return {"unseen": unseen} if unseen else {}
