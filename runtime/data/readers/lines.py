"""Lines: one text file for each field, aligned line by line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

from ....specs.findings import InputError
from ..text_files import count_lines, read_lines, resolve
from .reader import Reader, Record, refuse_missing
from .reader_settings import LinesSettings


class LinesReader(Reader):
    """Reader of aligned text files."""

    settings: LinesSettings

    def parts(self) -> int:
        """Return the number of files of each field."""
        return len(next(iter(self.settings.groups.values())))

    def files(self) -> Mapping[str, Path]:
        """Return all files.

        Raises:
            InputError: a file is outside of the root.
        """
        names = [name for group in self.settings.groups.values() for name in group]
        return {name: resolve(self.root, name) for name in names}

    def lines(self, fields: Sequence[str]) -> list[tuple[Path, ...]]:
        """Return the files themselves.

        Raises:
            InputError: a file is outside of the root, or there is no such field.
        """
        for field in fields:
            refuse_missing(field, self.settings.fields(), "lines")
        groups = [self.settings.groups[field] for field in fields]
        paths = [[resolve(self.root, name) for name in names] for names in groups]
        return list(zip(*paths, strict=True))

    def records(self, part: int, fields: Sequence[str]) -> Iterator[Record]:
        """Yield line n of each file as a record.

        Raises:
            InputError: a file cannot be read, or two files have different numbers of lines.
        """
        return read_aligned(self.lines(fields)[part], fields)


def read_aligned(paths: Sequence[Path], fields: Sequence[str]) -> Iterator[Record]:
    """Yield line n of each of some files as a record.

    Args:
        paths: the files.
        fields: the field of each.

    Raises:
        InputError: a file cannot be read, or two files have different numbers of lines.
    """
    for number, row in enumerate(zip_longest(*map(read_lines, paths)), start=1):
        if None in row:
            refuse_unequal(paths, fields)
        yield Record(dict(zip(fields, row, strict=True)), f"{paths[0]}:{number}")


def refuse_unequal(
    paths: Sequence[Path], fields: Sequence[str], counts: Sequence[int] | None = None
) -> None:
    """Check that aligned files have the same number of lines.

    Args:
        paths: the files.
        fields: the field of each.
        counts: the number of lines of each; None counts them.

    Raises:
        InputError: the numbers differ; the message has both.
    """
    lines = list(map(count_lines, paths)) if counts is None else list(counts)
    for path, field, count in zip(paths, fields, lines, strict=True):
        if count != lines[0]:
            raise InputError(
                f"{lines[0]} {fields[0]} lines but {count} {field} lines",
                location=f"{paths[0]} and {path}",
                help=f"line {min(lines[0], count) + 1} has no counterpart; parallel files must"
                " align line by line",
            )
