"""CSV and TSV files, with the names of the fields in the first row."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ....specs.findings import InputError
from ..text_files import raw_lines
from .reader import FilesReader, Record, refuse_missing


class DelimitedReader(FilesReader):
    """Reader of CSV and TSV files."""

    def records(self, part: int, fields: Sequence[str]) -> Iterator[Record]:
        """Yield each row as a record of texts.

        Raises:
            InputError: the file cannot be read or is empty, lacks a field, or a row has another
                number of fields than the first.
        """
        path = self.path(part)
        csv.field_size_limit(sys.maxsize)
        rows = csv.reader(
            _texts(path),
            delimiter=self.settings.delimiter or _delimiter(path),
            quoting=csv.QUOTE_MINIMAL if self.settings.quoting else csv.QUOTE_NONE,
            strict=True,
        )
        names: list[str] | None = list(self.settings.names) if self.settings.names else None
        found, before = False, 0
        try:
            for row in rows:
                place, before = f"{path}:{before + 1}", rows.line_num
                if not row:
                    continue
                if names is None:
                    names = row
                    for field in fields:
                        refuse_missing(field, names, place)
                    continue
                if len(row) != len(names):
                    raise InputError(
                        f"the row has {len(row)} fields, not {len(names)}",
                        place=place,
                        help="correct the row; a field with the delimiter needs quotes",
                    )
                found = True
                yield Record(dict(zip(names, row, strict=True)), place)
        except csv.Error as error:
            raise InputError(
                f"the row cannot be read: {error}",
                place=f"{path}:{before + 1}",
                help="correct its quotes, or set 'quoting' to false",
            ) from error
        if not found:
            raise InputError("the file has no rows", place=str(path), help="name a file with rows")


def _delimiter(path: Path) -> str:
    return "\t" if path.name.removesuffix(".gz").endswith(".tsv") else ","


def _texts(path: Path) -> Iterator[str]:
    """Yield the lines of a file with their line endings, which may be part of a field.

    Raises:
        InputError: the file cannot be read, or is not UTF-8.
    """
    for number, raw in enumerate(raw_lines(path), start=1):
        try:
            yield raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"byte 0x{raw[error.start]:02x} at offset {error.start} of the line is not UTF-8",
                place=f"{path}:{number}",
                help=f"convert the file to UTF-8, such as: iconv -f latin1 -t utf-8 {path.name}",
            ) from error
