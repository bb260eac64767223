"""Synthetic data: texts that a checkpoint wrote (`weft synthesize`), with what they were made from.

A folder of synthetic data:

    provenance.json     checkpoints, settings and digests of what was read; once all rows are
                        answered, also their number and the digest of each file
    train.FIELD.txt     one line for each row
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ....specs.files import sha256_of
from ....specs.findings import InputError, SpecError
from ...system.strangers import object_in
from ..text_files import resolve
from .lines import read_aligned
from .reader import Reader, Record, refuse_missing
from .reader_settings import SyntheticSettings

PROVENANCE = "provenance.json"
"""File that tells from what the texts were made."""


def file_of_field(field: str) -> str:
    """Return the name of the file with the texts of a field."""
    return f"train.{field}.txt"


class SyntheticReader(Reader):
    """Reader of a folder of synthetic data."""

    settings: SyntheticSettings

    @property
    def folder(self) -> Path:
        """The folder.

        Raises:
            InputError: it is outside of the root.
        """
        return resolve(self.root, self.settings.folder)

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """What the texts were made from.

        Raises:
            InputError: there is no such folder, it is damaged, or rows have no answer yet.
        """
        try:
            provenance = object_in(self.folder, PROVENANCE)
        except SpecError as error:
            raise self._damaged(PROVENANCE) from error
        except InputError as error:
            raise InputError(
                f"'{self.settings.folder}' is no folder of synthetic data: {error.problem}",
                location=str(self.folder),
                help="write it with 'weft synthesize', below data.root",
            ) from error
        files, fields = provenance.get("files"), provenance.get("fields")
        if files is None:
            raise InputError(
                f"not all rows of '{self.settings.folder}' are answered",
                location=str(self.folder / PROVENANCE),
                help="run the same command 'weft synthesize' again, which continues",
            )
        if not isinstance(files, dict) or not isinstance(fields, list):
            raise self._damaged(PROVENANCE)
        return provenance

    def _damaged(self, file: str) -> InputError:
        return InputError(
            "the file is not as 'weft synthesize' wrote it",
            location=str(self.folder / file),
            help="remove the folder and write it again; or read its texts with the reader 'lines'",
        )

    @property
    def fields(self) -> list[str]:
        """Fields of the records."""
        return [str(field) for field in self.provenance["fields"]]

    def parts(self) -> int:
        """Return 1: the folder."""
        return 1

    def files(self) -> dict[str, Path]:
        """Return the files of the texts."""
        names = map(file_of_field, self.fields)
        return {f"{self.settings.folder}/{name}": self.folder / name for name in names}

    def contents(self) -> dict[str, Path]:
        """Return the files, after a comparison with the digests that were written with them.

        Raises:
            InputError: a file was changed, or cannot be read.
        """
        for path in self.files().values():
            try:
                digest = sha256_of(path)
            except OSError as error:
                raise self._damaged(path.name) from error
            if self.provenance["files"].get(path.name) != digest:
                raise self._damaged(path.name)
        provenance = {f"{self.settings.folder}/{PROVENANCE}": self.folder / PROVENANCE}
        return {**self.files(), **provenance}

    def lines(self, fields: Sequence[str]) -> list[tuple[Path, ...]]:
        """Return the files of some fields.

        Raises:
            InputError: there is no such field.
        """
        for field in fields:
            refuse_missing(field, self.fields, self.settings.folder)
        return [tuple(self.folder / file_of_field(field) for field in fields)]

    def records(self, part: int, fields: Sequence[str]) -> Iterator[Record]:
        """Yield line n of each file as a record."""
        return read_aligned(self.lines(fields)[part], fields)

    @property
    def options(self) -> Mapping[str, Any]:
        """The folder, and what its texts were made from."""
        return {"folder": self.settings.folder, "provenance": self.provenance}
