"""JSON Lines: one JSON object on each line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from ....specs.findings import InputError
from ..text_files import read_lines
from .reader import FilesReader, Record, refuse_missing


class JsonLinesReader(FilesReader):
    """Reader of files with one JSON object on each line; empty lines are skipped."""

    def records(self, part: int, fields: Sequence[str]) -> Iterator[Record]:
        """Yield each object as a record.

        Raises:
            InputError: the file cannot be read or is empty, or a line is not a JSON object with
                all fields.
        """
        path, found = self.path(part), False
        for number, line in enumerate(read_lines(path), start=1):
            if not line.strip():
                continue
            place, found = f"{path}:{number}", True
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                problem = "the line is not a JSON object"
                raise InputError(problem, place=place, help=f"correct it: {error}") from error
            if not isinstance(value, dict):
                raise InputError(
                    "the line is not a JSON object",
                    place=place,
                    help='write an object such as {"text": "..."} on each line',
                )
            for field in fields:
                refuse_missing(field, list(value), place)
            yield Record(value, place)
        if not found:
            raise InputError("the file is empty", place=str(path), help="name a file with records")
