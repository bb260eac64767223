"""CSV and TSV files, with the names of the fields in the first row."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from ....specs.findings import InputError
from ..streams import ENDINGS
from ..text_files import decode, raw_lines
from .reader import FilesReader, Record, refuse_missing

DELIMITERS = (",", ";", "\t", "|")
"""Delimiters that are suggested."""
DECLARED = re.compile(r"sep=(.)\s*")
"""What spreadsheets write and read as a first line, to name the delimiter."""


class DelimitedReader(FilesReader):
    """Reader of CSV and TSV files."""

    def records(self, part: int, fields: Sequence[str]) -> Iterator[Record]:
        """Yield each row as a record of texts.

        Raises:
            InputError: the file cannot be read or is empty, lacks a field or has it twice, or a row
                has another number of fields than the first.
        """
        path = self.path(part)
        csv.field_size_limit(sys.maxsize)
        usual, lines = table_of(path)
        delimiter = self.settings.delimiter or usual
        rows = csv.reader(
            lines,
            delimiter=delimiter,
            quoting=csv.QUOTE_MINIMAL if self.settings.quoting else csv.QUOTE_NONE,
            strict=True,
        )
        names: list[str] | None = list(self.settings.names) if self.settings.names else None
        for field in fields if names else ():
            refuse_missing(field, names or (), str(path))
        has_rows, before = False, 0
        try:
            for row in rows:
                location, before = f"{path}:{before + 1}", rows.line_num
                if not row:
                    continue
                if names is None:
                    names = row
                    _refuse_header(row, fields, delimiter, location)
                    continue
                _refuse_row(row, names, delimiter, location)
                if not has_rows and row == names:
                    raise InputError(
                        "the first row has the names of the fields",
                        location=location,
                        help="remove 'names', which is for files without such a row",
                    )
                has_rows = True
                yield Record(dict(zip(names, row, strict=True)), location)
        except csv.Error as error:
            raise InputError(
                f"the row cannot be read: {_explained(str(error))}",
                location=f"{path}:{before + 1}",
                help="correct the row; double the quotes inside of quotes, or set 'quoting' to"
                " false if quotes are ordinary characters",
            ) from error
        if not has_rows:
            raise InputError(
                "the file has no rows", location=str(path), help="name a file with rows"
            )


def table_of(path: Path) -> tuple[str, Iterator[str]]:
    """Open a file once; return its usual delimiter, and its lines with their endings.

    The delimiter is what a first line `sep=;` declares, which is empty among the lines, otherwise a
    tab in .tsv and else a comma.

    Raises:
        InputError: the file cannot be read, or is not UTF-8.
    """
    lines = _texts(path)
    first = next(lines, "")
    if declared := DECLARED.fullmatch(first):
        return declared[1], chain(["\n"], lines)
    name = path.name
    for ending in ENDINGS:
        name = name.removesuffix(ending)
    return "\t" if name.endswith(".tsv") else ",", chain([first], lines)


def other_delimiter(path: Path) -> str | None:
    """Return what separates the fields of a file by its first row, if not the usual delimiter.

    It is the delimiter that separates most, if the usual one separates nothing there.

    Raises:
        InputError: the file cannot be read, or is not UTF-8.
    """
    usual, lines = table_of(path)
    header = next((line for line in lines if line.strip()), "")
    delimiters = [usual, *DELIMITERS]
    numbers = {text: len(next(csv.reader([header], delimiter=text), ())) for text in delimiters}
    most = usual if numbers[usual] > 1 else max(numbers, key=lambda text: numbers[text])
    return None if most == usual else most


def _refuse_header(
    row: Sequence[str], fields: Sequence[str], delimiter: str, location: str
) -> None:
    """Check that the first row has the names of all fields that are needed.

    Raises:
        InputError: one is missing, or occurs twice.
    """
    if not set(fields) <= set(row):
        _suggest(row, delimiter, lambda other: set(fields) <= set(other), location)
    for field in fields:
        refuse_missing(field, row, location)


def _refuse_row(row: Sequence[str], names: Sequence[str], delimiter: str, location: str) -> None:
    """Check that a row has as many fields as there are names.

    Raises:
        InputError: it has another number.
    """
    if len(row) == len(names):
        return
    _suggest(row, delimiter, lambda other: len(other) == len(names), location)
    raise InputError(
        f"the row has {len(row)} fields, not {len(names)}",
        location=location,
        help="correct the row; a field with the delimiter needs quotes",
    )


def _suggest(
    row: Sequence[str], delimiter: str, fits: Callable[[Sequence[str]], bool], location: str
) -> None:
    """Raise an error if a row fits with another delimiter.

    Raises:
        InputError: it does.
    """
    text = delimiter.join(row)
    for other in DELIMITERS:
        if other != delimiter and len(split := text.split(other)) > len(row) and fits(split):
            raise InputError(
                f"the row has {len(row)} field{'s' * (len(row) != 1)} separated by"
                f" {json.dumps(delimiter)}, and {len(split)} separated by {json.dumps(other)}",
                location=location,
                help=f'set the delimiter of the files: "delimiter": {json.dumps(other)}',
            )


def _explained(problem: str) -> str:
    """Return what is wrong with a row in other words than those of the csv module."""
    if problem.startswith("new-line"):
        return "a carriage return stands inside a field without quotes"
    if problem.startswith("unexpected end"):
        return "its quote is never closed"
    if problem.endswith("expected after '\"'"):
        return "a field continues after its closing quote"
    return problem


def _texts(path: Path) -> Iterator[str]:
    """Yield the lines of a file with their line endings, which may be part of a field.

    Raises:
        InputError: the file cannot be read, or is not UTF-8.
    """
    for number, raw in enumerate(raw_lines(path), start=1):
        yield decode(raw, path, number, keep_end=True)
