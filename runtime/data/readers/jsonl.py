"""JSON Lines: one JSON object on each line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

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
        path, is_empty = self.path(part), True
        for number, line in enumerate(read_lines(path), start=1):
            if is_blank(line):
                continue
            location, is_empty = f"{path}:{number}", False
            value = json_object(line, location)
            for field in fields:
                refuse_missing(field, list(value), location)
            yield Record(value, location)
        if is_empty:
            raise InputError(
                "the file is empty", location=str(path), help="name a file with records"
            )


def is_blank(line: str) -> bool:
    """Return whether a line is skipped: it has at most white space."""
    return not line.strip()


def json_value(line: str, location: str) -> Any:
    """Return the JSON value on a line.

    Args:
        line: the line.
        location: file and line, for messages.

    Raises:
        InputError: the line is not JSON, or one of its objects has a key twice.
    """
    try:
        return json.loads(line, object_pairs_hook=distinct_keys)
    except RepeatedKeyError as error:
        help_ = "remove or rename all but one of them"
        raise InputError(str(error), location=location, help=help_) from error
    except (ValueError, RecursionError) as error:
        reason = str(error)
        if isinstance(error, json.JSONDecodeError):
            reason = f"{error.msg} at column {error.colno}"
        raise InputError(
            "the line is not JSON",
            location=location,
            help=f"correct it: {reason}; a value must be on one line, as 'jq -c .' writes it",
        ) from error


def json_object(line: str, location: str) -> dict[str, Any]:
    """Return the JSON object on a line; the arguments are those of `json_value`.

    Raises:
        InputError: the line is not a JSON object, or one of its objects has a key twice.
    """
    value = None if line.lstrip()[:1].isalnum() else json_value(line, location)
    if not isinstance(value, dict):
        help_ = 'write an object such as {"text": "..."} on each line'
        if isinstance(value, list):
            help_ += "; 'jq -c .[]' writes the items of a list so"
        raise InputError("the line is not a JSON object", location=location, help=help_)
    record: dict[str, Any] = value
    return record


class RepeatedKeyError(ValueError):
    """A key that occurs twice in an object."""


def distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object.

    Raises:
        RepeatedKeyError: a key occurs twice, of which Python would keep the last.
    """
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        key = next(key for key in keys if keys.count(key) > 1)
        msg = f"{keys.count(key)} values have the key '{key:.60}'"
        raise RepeatedKeyError(msg)
    return value
