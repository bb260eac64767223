"""Parallel corpora that the mtdata library fetches, with the fields `source` and `target`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..corpora import fetched
from ..text_files import read_lines
from .lines import refuse_unequal
from .reader import Reader, Record, refuse_missing

FIELDS = ("source", "target")


class MtdataReader(Reader):
    """Reader of named corpora, which mtdata downloads."""

    def parts(self) -> int:
        """Return the number of corpora."""
        return len(self.settings.names)

    def files(self) -> Mapping[str, Path]:
        """Return the fetched files, which are in the cache folder.

        Raises:
            InputError: a corpus cannot be fetched.
        """
        return {str(path): path for paths in self._fetched() for path in paths}

    def lines(self, fields: Sequence[str]) -> list[tuple[Path, ...]]:
        """Return the fetched files of the given fields.

        Raises:
            InputError: a corpus cannot be fetched, or there is no such field.
        """
        for field in fields:
            refuse_missing(field, FIELDS, "mtdata")
        return [tuple(paths[FIELDS.index(field)] for field in fields) for paths in self._fetched()]

    def records(self, part: int, fields: Sequence[str]) -> Iterator[Record]:
        """Yield the pairs of one corpus.

        Raises:
            InputError: as for `lines`.
        """
        paths = self.lines(fields)[part]
        refuse_unequal(paths, fields)
        for number, row in enumerate(zip(*map(read_lines, paths), strict=True), start=1):
            yield Record(dict(zip(fields, row, strict=True)), f"{paths[0]}:{number}")

    def _fetched(self) -> list[tuple[Path, Path]]:
        settings = self.settings
        return fetched(settings.names, settings.languages, settings.digests)
