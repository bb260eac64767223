"""Sources: the records of several readers, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from .reader import Reader, Record
from .split import SourcesSettings, reader_of


class SourcesReader(Reader):
    """Reader of the sources of a split."""

    settings: SourcesSettings

    @cached_property
    def readers(self) -> dict[str, Reader]:
        """The reader of each source.

        Raises:
            InputError: that of an installed package cannot be imported.
        """
        return {
            name: reader_of(source, self.root) for name, source in self.settings.by_name.items()
        }

    @property
    def sources(self) -> dict[str, int]:
        """Number of parts of each source."""
        return {name: reader.parts() for name, reader in self.readers.items()}

    def parts(self) -> int:
        """Return the number of parts of all sources."""
        return sum(self.sources.values())

    def records(self, part: int, fields: Sequence[str]) -> Iterator[Record]:
        """Yield the records of one part of a source."""
        for reader in self.readers.values():
            if part < reader.parts():
                return reader.records(part, fields)
            part -= reader.parts()
        msg = f"there is no part {part}"
        raise IndexError(msg)

    def files(self) -> dict[str, Path]:
        """Return the files of all sources."""
        return {n: path for r in self.readers.values() for n, path in r.files().items()}

    def contents(self) -> dict[str, Path]:
        """Return all files that the records consist of."""
        return {n: path for r in self.readers.values() for n, path in r.contents().items()}

    def lines(self, fields: Sequence[str]) -> list[tuple[Path, ...]] | None:
        """Return the text files of all sources, if each of them has some."""
        groups = [reader.lines(fields) for reader in self.readers.values()]
        if any(group is None for group in groups):
            return None
        return [paths for group in groups if group is not None for paths in group]

    @property
    def options(self) -> Mapping[str, Any]:
        """Reader and settings of each source."""
        return {
            name: [source.reader, dict(self.readers[name].options)]
            for name, source in self.settings.by_name.items()
        }
