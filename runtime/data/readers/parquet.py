"""Parquet files, read in batches of rows; needs pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ....specs.findings import InputError
from ..text_files import refuse_missing_file
from .reader import FilesReader, Record, refuse_missing, required

ROWS = 10_000
"""Rows read at a time."""


class ParquetReader(FilesReader):
    """Reader of Parquet files."""

    def records(self, part: int, fields: Sequence[str]) -> Iterator[Record]:
        """Yield each row as a record.

        Raises:
            InputError: pyarrow is missing, the file cannot be read, is empty, or lacks a column.
        """
        path = self.path(part)
        refuse_missing_file(path)
        parquet = required("pyarrow.parquet", "parquet", str(path))
        try:
            file: Any = parquet.ParquetFile(path)
        except Exception as error:  # pyarrow raises many types
            problem = f"not a Parquet file: {str(error).partition(chr(10))[0]:.200}"
            raise InputError(problem, location=str(path), help="copy the file again") from error
        with file:
            for field in fields:
                refuse_missing(field, file.schema_arrow.names, str(path))
            if file.metadata.num_rows == 0:
                raise InputError(
                    "the file has no rows", location=str(path), help="name a file with rows"
                )
            number = 0
            batches = file.iter_batches(batch_size=ROWS, columns=list(dict.fromkeys(fields)))
            while (batch := _next(batches, f"{path}, row {number + 1}")) is not None:
                for values in batch:
                    number += 1
                    yield Record(values, f"{path}, row {number}")


def _next(batches: Iterator[Any], location: str) -> list[dict[str, Any]] | None:
    """Return the next batch of rows, or None after the last one.

    Raises:
        InputError: the file is damaged.
    """
    try:
        batch = next(batches, None)
        return None if batch is None else list(batch.to_pylist())
    except Exception as error:  # pyarrow raises many types; a text may not be UTF-8
        problem = f"the file is damaged: {str(error).partition(chr(10))[0]:.200}"
        raise InputError(problem, location=location, help="copy the file again") from error
