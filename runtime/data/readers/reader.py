"""The contract of a reader: records of named fields, from the files of a split.

A reader is a subclass of `Reader` that its settings name, as those in `settings.py` do.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ....specs.findings import InputError, did_you_mean
from ..text_files import resolve


class Record(NamedTuple):
    """One row of data."""

    values: Mapping[str, Any]
    """Values by field: texts, numbers, arrays, or paths of files that a column reads."""
    location: str
    """Where it was read: file and line or row, for messages."""


class Reader(ABC):
    """Reader of the records of one split."""

    def __init__(self, settings: Any, root: str) -> None:
        """Store the settings.

        Args:
            settings: settings of the reader's type.
            root: folder that must contain every file.
        """
        self.settings, self.root = settings, root

    @abstractmethod
    def parts(self) -> int:
        """Return the number of files, or of groups of aligned files.

        Raises:
            InputError: a file is outside of the root.
        """

    @property
    def sources(self) -> Mapping[str, int]:
        """Number of parts of each source, in order; empty if the records have one."""
        return {}

    @abstractmethod
    def records(self, part: int, fields: Sequence[str]) -> Iterator[Record]:
        """Yield the records of one part, in order; the same ones in each call.

        Args:
            part: number of the part, from 0.
            fields: the fields that are needed; others may be missing from the records.

        Raises:
            InputError: a file cannot be read, lacks a field, or has invalid content.
        """

    def files(self) -> Mapping[str, Path]:
        """Return the files of all parts by name; a change of one prepares the data again.

        Raises:
            InputError: a file is outside of the root.
        """
        names = getattr(self.settings, "files", ())
        return {name: resolve(self.root, name) for name in names}

    def contents(self) -> Mapping[str, Path]:
        """Return all files that the records consist of: `files()`, and those that they name.

        Raises:
            InputError: a file is outside of the root, or cannot be read.
        """
        return self.files()

    def lines(self, fields: Sequence[str]) -> list[tuple[Path, ...]] | None:  # noqa: ARG002
        """Return a text file for each field of each part, aligned line by line.

        None means that there are no such files; they are then written from the records.

        Raises:
            InputError: as for `records`.
        """
        return None

    @property
    def options(self) -> Mapping[str, Any]:
        """Settings that affect the records, as plain data."""
        settings: Mapping[str, Any] = self.settings.model_dump(mode="json", exclude_defaults=True)
        return settings


class FilesReader(Reader):
    """Reader of files that are read one after the other."""

    def parts(self) -> int:
        """Return the number of files."""
        return len(self.settings.files)

    def path(self, part: int) -> Path:
        """Return the path of one file.

        Raises:
            InputError: it is outside of the root.
        """
        return resolve(self.root, self.settings.files[part])


def refuse_missing(field: str, names: Sequence[str], location: str) -> None:
    """Check that files have a field, and have it once.

    Raises:
        InputError: the field is not among the known ones, or several have its name.
    """
    if names.count(field) > 1:
        raise InputError(
            f"{names.count(field)} fields have the name '{field}'",
            location=location,
            help="rename or remove all but one of them",
        )
    if field not in names:
        raise InputError(
            f"there is no field '{field}'",
            location=location,
            help=did_you_mean(field, names) or "name a field of the file as 'from' of the column",
        )


def required(module: str, extra: str, location: str) -> Any:
    """Return a module of an optional package.

    Args:
        module: name of the module.
        extra: extra of Weft that installs it.
        location: what needs it, for the message.

    Raises:
        InputError: the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise InputError(
            f"this needs the package '{package}', which is not installed",
            location=location,
            help=f"pip install 'weft[{extra}]'",
        ) from error
